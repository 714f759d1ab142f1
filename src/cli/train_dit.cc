// patina train-dit: trains an adapter of the ACE-Step 1.5 diffusion transformer on cached songs.
#include <charconv>
#include <chrono>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "cli/common.h"
#include "cli/console.h"
#include "cli/dit_run.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/run_settings.h"
#include "cli/self_test.h"
#include "cli/train_fit.h"
#include "cli/train_run.h"
#include "formats/names.h"

namespace patina {

namespace {

constexpr const char *kWhole = "whole", *kTurbo = "turbo";

// Defaults are those that trainers of this model have found good; names are train-lm's where it has one.
void set_defaults(DitFlags& flags) {
  flags.command = "train-dit";
  AdapterFlags& adapter = flags.adapter_flags;
  adapter.rank = 128;
  adapter.alpha = 256.0f;
  adapter.lokr_dim = 512;
  adapter.lokr_alpha = 512.0f;
  adapter.lokr_factor = 6;
  adapter.lokr_decompose_both = true;
  TrainOptions& options = flags.options;
  options.learning_rate = 5e-4;
  options.epochs = 400;
  options.least_warmup_steps = 50;
  options.optimizer.muon_scale = 1.0;
  flags.run.milestone_step = 0.1;
  options.target_loss = 0.4;
}

// Returns the option that asks for the self-test.
const CLI::Option* add_options(CommandLine& line, DitFlags& flags) {
  FlowOptions& flow = flags.flow;
  const auto count = [](int64_t least) { return quiet(CLI::Range(least, int64_t{1} << 24)); };
  const auto share = [] { return between(0.0, 1.0); };
  line.option("--model", flags.model, "PATH",
              "The transformer: a .safetensors or .gguf file, an index of several, or a directory (diffusers' form "
              "too). It is never changed.")
      ->required();
  line.option("--data", flags.data, "DIR", "Directory of cached songs, one .safetensors file each.")->required();
  add_target_options(line, flags,
                     "Layers to adapt: all, attn (self and cross), self, cross, mlp, or a list of these and of single "
                     "ones (self.q, cross.v, mlp.down) with commas.");
  line.option("--crop", flags.asked_crop, "FRAMES",
              "Train on random windows of so many latent frames (25 a second) of each song; whole; or auto: as many as "
              "fit into memory from --crop-min to --crop-max.");
  line.option("--crop-min", flags.crop_least, "FRAMES", "Least that auto takes.")->check(count(2));
  line.option("--crop-max", flags.crop_most, "FRAMES", "Most that auto takes.")->check(count(2));
  line.option("--batch", flags.batch, "N", "Songs in memory at once, laid end to end.")->check(count(1));
  line.option("--grad-accum", flags.grad_accum, "N", "Batches of an optimizer step.")->check(count(1));
  line.option("--limit", flags.limit, "N", "Use the first N songs only; 0 uses all.")->check(count(0));
  line.option("--order", flags.order, "NAME", "Order of the songs in an epoch: shuffle or fixed.")
      ->check(quiet(CLI::IsMember({"shuffle", "fixed"})));
  line.option("--loss-weighting", flags.weighting, "NAME",
              "How timesteps weigh: flow_snr, by signal to noise, or none.")
      ->check(quiet(CLI::IsMember({"flow_snr", "none"})));
  line.option("--snr-gamma", flow.snr_gamma, "NUMBER", "flow_snr: greatest weight before the mean is made 1.")
      ->check(above_zero());
  line.option("--t-bias", flow.t_bias, "NUMBER", "flow_snr: exponent of 1 - t; more favours little noise.")
      ->check(not_negative());
  line.add_flag("--channel-balance,!--no-channel-balance", flow.channel_balance,
                "Weigh latent channels by 1 / deviation, from channel_stats.json beside the songs or else from the "
                "songs themselves (on unless --no-channel-balance).");
  line.option("--timesteps", flags.timesteps, "NAME",
              "Law of t: logistic (of a normal number), or turbo: the eight steps at which turbo models are run.")
      ->check(quiet(CLI::IsMember({"logistic", kTurbo})));
  line.option("--timestep-mu", flow.mu, "NUMBER", "Mean before the logistic function.")->check(between(-20.0, 20.0));
  line.option("--timestep-sigma", flow.sigma, "NUMBER", "Deviation before the logistic function.")->check(above_zero());
  line.option("--t-min", flow.t_min, "T", "Draw no t below.")->check(share());
  line.option("--t-max", flow.t_max, "T", "Draw no t above.")->check(share());
  line.option("--cfg-ratio", flow.unconditional, "SHARE", "Share of draws whose conditioning is dropped.")
      ->check(share());
  line.option("--genre-ratio", flags.genre_percent, "PERCENT",
              "Share of draws that take the genre's conditioning, of songs that have one.")
      ->check(between(0.0, 100.0));
  line.add_flag("--prepare-stats", flags.prepare_stats, "Write channel_stats.json into --data, and train nothing.");
  add_train_options(line, flags);
  return line.add_flag(kSelfTestFlag, kSelfTestHelp);
}

// 0: whole songs; -1: auto.
int64_t parse_crop(const std::string& text) {
  if (text == kAuto) return -1;
  if (text == kWhole) return 0;
  int64_t frames = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), frames);
  if (error != std::errc() || end != text.data() + text.size() || frames < 2)
    fail(Error::Kind::kUsage, "--crop {}: expected auto, whole or a number of frames, at least 2", text);
  return frames;
}

void resolve_flow_flags(DitFlags& flags) {
  flags.flow.crop_frames = parse_crop(flags.asked_crop);
  if (flags.crop_least > flags.crop_most)
    fail(Error::Kind::kUsage, "--crop-min {} is more than --crop-max {}", flags.crop_least, flags.crop_most);
  flags.flow.snr_weighting = flags.weighting == "flow_snr";
  flags.flow.turbo_steps = flags.timesteps == kTurbo;
  flags.flow.genre = flags.genre_percent / 100.0;
  flags.flow.shuffle = flags.order == "shuffle";
  if (!(flags.flow.t_min < flags.flow.t_max))
    fail(Error::Kind::kUsage, "--t-min {} is not below --t-max {}", flags.flow.t_min, flags.flow.t_max);
  check_timesteps(flags.flow);
}

std::set<std::string> asked_sites(const DitFlags& flags) {
  std::set<std::string> names;
  for (const SiteName site : parse_sites(flags.sites, ModelFamily::kDit)) names.insert(std::string(site_name(site)));
  return names;
}

DitModel load_model(const DitFlags& flags, double* ms) {
  const auto start = std::chrono::steady_clock::now();
  DitModel model = DitModel::load(flags.model);
  const std::vector<std::filesystem::path> files = model.files().files();
  const std::vector<std::span<const std::byte>> maps = model.files().maps();
  for (size_t i = 0; i < files.size(); ++i) watch_mapped_file(maps[i], files[i].string());
  *ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (flags.flow.unconditional > 0.0 && model.null_conditioning().empty())
    fail(Error::Kind::kModel,
         "{}: holds no null_condition_emb, which --cfg-ratio {} puts in the place of a dropped conditioning; give "
         "the original checkpoint or diffusers' whole directory, or --cfg-ratio 0",
         flags.model, flags.flow.unconditional);
  return model;
}

struct Validation {
  std::vector<Song> songs;
  std::string fingerprint;  // of a directory of its own
};

Validation load_validation(const DitFlags& flags, const SongWidths& widths, SongSet& songs) {
  if (flags.run.validation.empty()) return {};
  if (const std::optional<double> fraction = validation_fraction(flags.run.validation))
    return {hold_out(songs, *fraction, flags.options.seed), ""};
  SongSet read = load_songs(flags.run.validation, widths, 0);
  return {std::move(read.songs), std::move(read.fingerprint)};
}

void watch(std::span<const Song> songs, const std::filesystem::path& directory) {
  for (const Song& song : songs)
    watch_mapped_file(song.mapped(), (directory / (song.name() + ".safetensors")).string());
}

int train(DitFlags& flags, EventWriter& events) {
  if (flags.plan_only && flags.prepare_stats)
    fail(Error::Kind::kUsage,
         "--prepare-stats writes a file, and plan writes none; run patina train-dit --prepare-stats");
  if (!flags.out.empty()) refuse_own_input(flags.out, flags.data, "--data");
  resolve_train_flags(flags);
  resolve_flow_flags(flags);
  RunPlace place = open_run(flags, !flags.plan_only && !flags.prepare_stats);
  double load_ms = 0.0;
  const DitModel model = load_model(flags, &load_ms);
  const DitConfig& config = model.config();
  const SongWidths widths{config.latent_channels, config.context_channels, config.encoder_width};
  SongSet songs = load_songs(flags.data, widths, flags.limit);
  if (flags.prepare_stats) {
    const ChannelStats stats = measure_channels(songs.songs, config.latent_channels);
    write_channel_stats(flags.data, stats);
    write_out(fmt::format("{}/{}: {}, {}\n", flags.data, kChannelStatsFile, counted(stats.songs, "song"),
                          counted(stats.frames, "frame")));
    return 0;
  }
  std::optional<ChannelStats> stats;
  if (flags.flow.channel_balance) stats = read_channel_stats(flags.data, config.latent_channels);
  const bool stats_from_file = stats.has_value();
  std::vector<float> channels(static_cast<size_t>(config.latent_channels), 1.0f);
  if (flags.flow.channel_balance)
    channels = channel_weights(stats ? *stats : measure_channels(songs.songs, config.latent_channels));
  const Validation validation = load_validation(flags, widths, songs);
  watch(songs.songs, flags.data);
  watch(validation.songs, validation.fingerprint.empty() ? flags.data : flags.run.validation);

  std::optional<AdapterFile> initial;
  std::vector<Site> sites;
  if (flags.init_adapter.empty()) {
    sites = select_sites(model.sites(), asked_sites(flags), static_cast<int>(flags.layers));
  } else {
    initial = read_fitting_adapter(model, flags.init_adapter);
    take_over(*initial, config.layers, asked_sites(flags), flags);
    for (const AdaptedSite& site : initial->sites) sites.push_back({site.layer, site.site, site.in, site.out});
  }
  if (ended_early(events)) return ended_status();

  if (place.checkpoint && flags.flow.crop_frames < 0)
    flags.flow.crop_frames = saved_crop(place.checkpoint->text().settings);
  const bool crop_auto = flags.flow.crop_frames < 0;
  if (crop_auto) {
    int64_t longest = 0;
    for (const Song& song : songs.songs) longest = std::max(longest, song.frames());
    flags.flow.crop_frames = std::min(flags.crop_most, std::max(flags.crop_least, longest));
  }
  const int64_t process_bytes = anonymous_bytes();
  if (!initial) check_trainables(sites, flags.adapter);
  const std::unique_ptr<Adapter> adapter =
      initial ? std::make_unique<Adapter>(model.sites(), initial->sites, flags.init_adapter)
              : std::make_unique<Adapter>(sites, flags.adapter);
  if (initial) adapter->set_dropout(flags.adapter.dropout, flags.options.seed);
  const int64_t budget_bytes = memory_budget(flags.memory.memory);
  const auto flow_options = [&](const TrainOptions& options, int64_t crop) {
    FlowTrainOptions flow{options, flags.flow, flags.batch, flags.batch * flags.grad_accum};
    flow.flow.crop_frames = crop;
    return flow;
  };
  const int64_t host_bytes = batch_bytes(flow_limits(songs.songs, flags.flow, flags.batch, config.patch), config);
  const int64_t fixed_bytes = process_bytes + host_bytes +
                              4 * static_cast<int64_t>(adapter->parameters().values().size_bytes()) +
                              adapter->constant_bytes();
  ThreadPool pool(flags.threads);
  const FitSubject subject{
      config.layers,
      flags.flow.crop_frames,
      crop_auto,
      "--crop",
      0,
      0,
      "--batch",
      [&](const TrainOptions& options, FitChoices choices, int64_t bytes) {
        return fit_memory(model, *adapter, songs.songs, flow_options(options, flags.flow.crop_frames), flags.crop_least,
                          choices, bytes, cpu_backend(), flags.threads);
      },
      [&](const TrainOptions& options, int64_t crop) {
        return std::make_unique<Trainer>(
            std::make_unique<FlowObjective>(model, *adapter, songs.songs, validation.songs, channels,
                                            flow_options(options, crop), cpu_backend(), pool),
            *adapter, options, pool);
      }};
  Fitted fitted = fit(subject, flags, budget_bytes, fixed_bytes);
  flags.flow.crop_frames = fitted.micro;
  const auto& objective = static_cast<const FlowObjective&>(fitted.trainer->objective());

  const TrainRun run{flags,
                     sites,
                     config.layers,
                     adapter->parameters().parameters(),
                     fitted.trainer->plan(),
                     objective.formulations(),
                     budget_bytes,
                     anonymous_bytes(),
                     host_bytes,
                     0,
                     model.fingerprint(),
                     songs.fingerprint,
                     validation.fingerprint};
  const bool held_out = !validation.songs.empty() && validation.fingerprint.empty();
  const DitRun dit{run,      flags,
                   model,    load_ms,
                   songs,    validation.songs,
                   held_out, stats_from_file,
                   channels, objective.epoch_audio_seconds()};
  const DitLayer& middle = model.layers()[model.layers().size() / 2];
  const int64_t tokens = flow_limits(songs.songs, flags.flow, flags.batch, config.patch).tokens;
  return run_training({run, *adapter, std::move(fitted.trainer), pool, opening_events(dit), describe(dit),
                       dit_settings(dit), initial, adapter_base(model), SampleRule{},
                       [&](const Trainer& trainer) {
                         return estimate_time(trainer, middle.products(), tokens, flags.options.gradients.formulation,
                                              cpu_backend(), pool);
                       },
                       [&](const TimeEstimate& time) { return audio_text(dit, time); },
                       [&](std::span<const OutputDirectory::File> written) { return usage_text(dit, written); }},
                      std::move(place), events);
}

int run(const Command& command, int argc, char** argv, bool plan_only) {
  DitFlags flags;
  set_defaults(flags);
  flags.plan_only = plan_only;
  CommandLine line(command);
  const CLI::Option* const self_test = add_options(line, flags);
  return run_train_command(line, flags, argc, argv, [&](EventWriter& events) {
    refuse_self_test(*self_test, flags.command);  // its own command line does not come here
    return train(flags, events);
  });
}

}  // namespace

int run_train_dit(const Command& command, int argc, char** argv) {
  if (asks_for_self_test(argc, argv)) {
    const Subject subjects[] = {product_subject(), dit_subject()};
    return run_self_test_command(command, subjects, kSelfTestFlag, argc, argv);
  }
  return run(command, argc, argv, false);
}
int plan_train_dit(const Command& command, int argc, char** argv) { return run(command, argc, argv, true); }

}  // namespace patina
