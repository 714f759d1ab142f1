#include "cli/dit_run.h"

#include "base/sha256.h"
#include "cli/common.h"
#include "cli/progress.h"
#include "cli/run_settings.h"
#include "cli/train_summary.h"

namespace patina {

namespace {

constexpr const char* kCrop = "--crop";

std::map<std::string, int64_t> type_counts(const DitModel& model) {
  std::map<std::string, int64_t> types;
  for (const DitLayer& layer : model.layers())
    for (const Tensor* weight : layer.products()) ++types[std::string(name(weight->dtype))];
  return types;
}

// What decides the loss, for events and for the comparison of a resumed run.
Json flow_settings(const DitFlags& flags) {
  const FlowOptions& flow = flags.flow;
  return {{kCrop, flow.crop_frames},
          {"--batch", flags.batch},
          {"--grad-accum", flags.grad_accum},
          {"--loss-weighting", flags.weighting},
          {"--snr-gamma", flow.snr_gamma},
          {"--t-bias", flow.t_bias},
          {"--channel-balance", flow.channel_balance},
          {"--timesteps", flags.timesteps},
          {"--timestep-mu", flow.mu},
          {"--timestep-sigma", flow.sigma},
          {"--t-min", flow.t_min},
          {"--t-max", flow.t_max},
          {"--cfg-ratio", flow.unconditional},
          {"--genre-ratio", flags.genre_percent},
          {"--order", flags.order}};
}

int64_t genre_songs(std::span<const Song> songs) {
  return std::ranges::count_if(songs, [](const Song& song) { return song.has_genre(); });
}

int64_t epoch_tokens(const DitRun& dit) {
  int64_t tokens = 0;
  for (const Song& song : dit.songs.songs) {
    const int64_t crop = dit.flags.flow.crop_frames, patch = dit.model.config().patch;
    const int64_t frames = crop > 0 && crop < song.frames() ? crop : song.frames();
    tokens += (frames + patch - 1) / patch;
  }
  return tokens;
}

Json data_event(const DitRun& dit) {
  const TrainPlan& plan = dit.run.plan;
  const auto songs = std::ssize(dit.songs.songs);
  return {{"path", dit.flags.data},
          {"fingerprint", dit.songs.fingerprint},
          {"samples", songs + (dit.held_out ? std::ssize(dit.validation) : 0)},
          {"used", songs},
          {"truncated", 0},
          {"skipped", Json::object()},
          {"validation", std::ssize(dit.validation)},
          {"tokens", epoch_tokens(dit)},
          {"supervisedTokens", epoch_tokens(dit)},
          {"frames", dit.songs.frames()},
          {kAudioSeconds, dit.epoch_audio_seconds},
          {"stepsPerEpoch", plan.steps_per_epoch},
          {"totalSteps", plan.total_steps},
          {"warmupSteps", plan.warmup_steps}};
}

Json model_event(const DitRun& dit) {
  const DitConfig& config = dit.model.config();
  return {{"path", dit.flags.model},
          {"architecture", kDitArchitecture},
          {"layers", config.layers},
          {"width", config.width},
          {"turbo", config.turbo},
          {"types", type_counts(dit.model)},
          {"bytes", dit.model.files().file_bytes()},
          {"ms", dit.load_ms}};
}

}  // namespace

Json opening_events(const DitRun& dit) {
  Json start = start_event(dit.run);
  start["flow"] = flow_settings(dit.flags);
  return {{"start", start}, {"model", model_event(dit)}, {"data", data_event(dit)}, {"memory", memory_event(dit.run)}};
}

std::string describe(const DitRun& dit) {
  const DitConfig& config = dit.model.config();
  const DitFlags& flags = dit.flags;
  const FlowOptions& flow = flags.flow;
  const TrainPlan& plan = dit.run.plan;
  std::string types;
  for (const auto& [type, count] : type_counts(dit.model)) types += fmt::format(", {} x {}", type, count);
  std::string text = fmt::format("model     {}: {}{}, {}, width {}, {} parameters{}\n", flags.model, kDitArchitecture,
                                 config.turbo ? " turbo" : "", counted(config.layers, "layer"), config.width,
                                 grouped(dit.model.parameters()), types);
  text += describe_adapter(dit.run);
  text += fmt::format("data      {}: {}, {} of audio{}\n", flags.data, counted(std::ssize(dit.songs.songs), "song"),
                      duration_text(static_cast<double>(dit.songs.frames()) / kFramesPerSecond),
                      genre_songs(dit.songs.songs) > 0
                          ? fmt::format(", {} with a genre's conditioning", grouped(genre_songs(dit.songs.songs)))
                          : "");
  if (!dit.validation.empty())
    text += fmt::format("validate  on {}{}\n", counted(std::ssize(dit.validation), "song"),
                        dit.held_out ? " of the data, held out" : " of " + flags.run.validation);
  text += fmt::format(
      "loss      t {}{}; {}; channels {}; {:g} of draws without conditioning\n",
      flow.turbo_steps ? "of the eight turbo steps" : fmt::format("logistic, mu {:g}, sigma {:g}", flow.mu, flow.sigma),
      flow.t_min > 0.0 || flow.t_max < 1.0 ? fmt::format(" within [{:g}, {:g}]", flow.t_min, flow.t_max) : "",
      flow.snr_weighting ? fmt::format("weighted by signal to noise up to {:g}", flow.snr_gamma)
                         : "all t weigh the same",
      !flow.channel_balance
          ? "alike"
          : fmt::format("balanced by {}", dit.stats_from_file ? kChannelStatsFile : "their own spread"),
      flow.unconditional);
  text += fmt::format(
      "steps     {} in {} of {}, {} of warm-up; {} a step, {} in memory at once, {}\n", grouped(plan.total_steps),
      counted(plan.epochs, "epoch"), counted(plan.steps_per_epoch, "step"), grouped(plan.warmup_steps),
      counted(flags.batch * flags.grad_accum, "song"), grouped(flags.batch),
      flow.crop_frames == 0 ? std::string("whole") : fmt::format("in crops of {}", counted(flow.crop_frames, "frame")));
  return text + describe_costs(dit.run);
}

Json dit_settings(const DitRun& dit) {
  Json settings = run_settings(dit.run);
  settings.update(flow_settings(dit.flags));
  const auto digest = [](std::span<const float> numbers) {
    Sha256 sha;
    sha.update(std::as_bytes(numbers));
    return sha.hex_digest().substr(0, 12);
  };
  settings["channel spread"] = digest(dit.channel_weights);
  settings["null_condition_emb"] = digest(dit.model.null_conditioning());
  return settings;
}

int64_t saved_crop(const Json& settings) { return settings.value(kCrop, int64_t{-1}); }

std::string usage_text(const DitRun& dit, std::span<const OutputDirectory::File> written) {
  std::string text;
  for (const OutputDirectory::File& file : written)
    text += fmt::format("  give {} to a program that loads {} adapters of ACE-Step 1.5\n",
                        shell_quoted(file.format == "peft" ? dit.flags.out : file.path.string()), file.format);
  return text;
}

std::string audio_text(const DitRun& dit, const TimeEstimate& time) {
  const double step_seconds = time.step_ms / 1e3;
  const double audio = dit.epoch_audio_seconds / static_cast<double>(dit.run.plan.steps_per_epoch);
  const double rate = audio / step_seconds;
  return fmt::format("{:.2f} audio-seconds a second; {} audio-seconds, a good adapter's worth, in {:.1f} hours\n", rate,
                     grouped(kGoodAudioSeconds), static_cast<double>(kGoodAudioSeconds) / rate / 3600.0);
}

}  // namespace patina
