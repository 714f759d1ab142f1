#include "train/flow_objective.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/attention.h"

namespace patina {

namespace {

// Where validation looks: the middle of five bands of t, whose losses differ by far.
struct Band {
  const char* name;
  double t;
};
constexpr Band kBands[] = {{"lossT01", 0.1}, {"lossT03", 0.3}, {"lossT05", 0.5}, {"lossT07", 0.7}, {"lossT09", 0.9}};
constexpr uint64_t kValidationSeed = 0;

// As a draw of validation: the middle of the song, as long as a crop.
FlowDraw middle(const Song& song, size_t index, const FlowOptions& options, int64_t patch, double t) {
  FlowDraw draw = {index, 0, song.frames(), t, false, false};
  const int64_t crop = options.crop_frames / patch * patch;
  if (options.crop_frames > 0 && crop < song.frames()) {
    draw.frames = std::max(crop, patch);
    draw.first_frame = (song.frames() - draw.frames) / 2 / patch * patch;
  }
  return draw;
}

int64_t largest_sum(std::vector<int64_t> counts, int64_t most) {
  std::ranges::sort(counts, std::greater());
  counts.resize(std::min(counts.size(), static_cast<size_t>(most)));
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t longest_conditioning(const Song& song) {
  return std::max(song.conditioning_tokens(false), song.has_genre() ? song.conditioning_tokens(true) : 0);
}

}  // namespace

FlowLimits flow_limits(std::span<const Song> songs, const FlowOptions& options, int64_t batch, int64_t patch) {
  std::vector<int64_t> tokens, conditioning;
  for (size_t i = 0; i < songs.size(); ++i) {
    tokens.push_back(middle(songs[i], i, options, patch, 0.5).tokens(patch));
    conditioning.push_back(longest_conditioning(songs[i]));
  }
  return {largest_sum(tokens, batch), largest_sum(conditioning, batch), std::min<int64_t>(batch, std::ssize(songs)),
          std::ranges::max(tokens)};
}

int64_t batch_bytes(const FlowLimits& limits, const DitConfig& config) {
  const int64_t row = config.patch * (config.in_channels() + 2 * config.latent_channels) + 3;
  return 4 * (limits.tokens * row + limits.conditioning * (config.encoder_width + 2) +
              limits.songs * (2 * kTimeChannels + 3));
}

FlowObjective::FlowObjective(const DitModel& model, Adapter& adapter, std::span<const Song> songs,
                             std::span<const Song> validation, std::span<const float> channel_weights,
                             const FlowTrainOptions& options, const Backend& backend, ThreadPool& pool)
    : model_(model),
      songs_(songs),
      validation_(validation),
      channel_weights_(channel_weights),
      options_(options),
      runner_(model, &adapter, flow_limits(songs, options.flow, options.batch, model.config().patch), options.gradients,
              backend, pool),
      even_weights_(channel_weights.size(), 1.0f) {
  PATINA_CHECK(!songs.empty() && options.batch > 0 && options.step_songs > 0, "{} songs, batch {}, step {}",
               songs.size(), options.batch, options.step_songs);
  memory_.weights_bytes = model.files().file_bytes();
  if (options.stream_weights) {
    memory_.weights_bytes = streamed_weight_bytes(model, runner_.graph(), adapter);
    runner_.stream_weights(model, adapter);
  }
  memory_.arena_bytes = runner_.arena_bytes();
  if (!validation.empty()) {
    validation_runner_ = std::make_unique<FlowRunner>(
        model, &adapter, flow_limits(validation, options.flow, 1, model.config().patch), std::nullopt, backend, pool);
    memory_.arena_bytes += validation_runner_->arena_bytes();
    if (options.stream_weights) {
      validation_runner_->stream_weights(model, adapter);
      memory_.weights_bytes += validation_runner_->window_bytes();
    }
  }
  const ValueId loss = runner_.graph().outputs().front();
  memory_.saved_bytes = live_bytes(runner_.graph(), runner_.plan(), runner_.graph().value(loss).producer);
}

FlowLayout FlowObjective::layout(int64_t step) const {
  return {model_.config(), channel_weights_, model_.null_conditioning(), options_.seed, step};
}

std::vector<std::vector<size_t>> FlowObjective::plan_epoch(int64_t epoch) const {
  std::vector<size_t> order(songs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (options_.flow.shuffle) {
    const RandomStream random(options_.seed, RandomUse::kShuffle, 0, static_cast<uint32_t>(epoch));
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  }
  std::vector<std::vector<size_t>> steps;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(options_.step_songs)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(options_.step_songs));
    steps.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return steps;
}

StepLoss FlowObjective::run_step(int64_t step, std::span<const size_t> samples, Profile* profile) {
  const DitConfig& config = model_.config();
  std::vector<FlowDraw> draws;
  for (const size_t song : samples)
    draws.push_back(draw_flow(songs_[song], song, options_.flow, config.patch, options_.seed, step));
  weigh_draws(draws, options_.flow);
  StepLoss result;
  for (const FlowDraw& draw : draws) {
    result.tokens += draw.tokens(config.patch);
    result.supervised += draw.frames;
  }
  result.weight_sum = static_cast<double>(result.supervised * config.latent_channels);
  result.figures = {{kAudioSeconds, static_cast<double>(result.supervised) / kFramesPerSecond}};
  runner_.begin_step(step);
  lap(profile, "prelude");
  const float scale = static_cast<float>(1.0 / result.weight_sum);
  for (size_t begin = 0; begin < draws.size(); begin += static_cast<size_t>(options_.batch)) {
    const size_t count = std::min(static_cast<size_t>(options_.batch), draws.size() - begin);
    const std::span<const FlowDraw> batch = std::span(draws).subspan(begin, count);
    fill(batch_, songs_, batch, layout(step));
    for (const FlowDraw& draw : batch) songs_[draw.song].release();
    lap(profile, "data");
    const double loss = runner_.run(batch_, scale, profile);
    if (!std::isfinite(loss)) {
      const std::string where = runner_.find_non_finite(batch_, scale);
      result.not_finite =
          fmt::format("the loss is {} (first value that is not finite: {})", loss, where.empty() ? "the loss" : where);
      return result;
    }
    result.loss_sum += loss;
  }
  return result;
}

ValidationLoss FlowObjective::validate() {
  const DitConfig& config = model_.config();
  const FlowLayout even = {config, even_weights_, {}, kValidationSeed, 0};
  ValidationLoss result{};
  double total = 0.0, latents = 0.0;
  validation_runner_->begin_step(0);
  for (const Band& band : kBands) {
    double sum = 0.0, count = 0.0;
    for (size_t i = 0; i < validation_.size(); ++i) {
      const FlowDraw draw = middle(validation_[i], i, options_.flow, config.patch, band.t);
      fill(batch_, validation_, std::span(&draw, 1), even);
      validation_[i].release();
      const double loss = validation_runner_->run(batch_, 0.0f);
      if (!std::isfinite(loss))
        fail(Error::Kind::kNonFinite, "the loss is {} (first value that is not finite: {})", loss,
             validation_runner_->find_non_finite(batch_, 0.0f));
      sum += loss;
      count += static_cast<double>(draw.frames * config.latent_channels);
      result.tokens += draw.tokens(config.patch);
    }
    result.figures.push_back({band.name, sum / count});
    total += sum;
    latents += count;
  }
  result.loss = total / latents;
  return result;
}

double FlowObjective::epoch_audio_seconds() const {
  int64_t frames = 0;
  for (size_t i = 0; i < songs_.size(); ++i)
    frames += middle(songs_[i], i, options_.flow, model_.config().patch, 0.5).frames;
  return static_cast<double>(frames) / kFramesPerSecond;
}

double FlowObjective::epoch_operations() const {
  const DitConfig& config = model_.config();
  int64_t tokens = 0, conditioning = 0;
  double full = 0.0, windowed = 0.0, cross = 0.0;  // pairs
  for (size_t i = 0; i < songs_.size(); ++i) {
    const int64_t t = middle(songs_[i], i, options_.flow, config.patch, 0.5).tokens(config.patch),
                  e = longest_conditioning(songs_[i]), w = std::min(config.window, t - 1);
    tokens += t;
    conditioning += e;
    full += static_cast<double>(t) * static_cast<double>(t);
    windowed += static_cast<double>(t * (2 * w + 1) - w * (w + 1));
    cross += static_cast<double>(t) * static_cast<double>(e);
  }
  const auto pairs = [&](const Node& node) {
    const bool grad = node.op->name() == "attention_grad";
    if (!grad && node.op->name() != "attention") return 0.0;
    const AttentionSpec& spec =
        grad ? static_cast<const AttentionGrad&>(*node.op).spec : static_cast<const Attention&>(*node.op).spec;
    if (node.inputs[3] != node.inputs[4]) return cross;
    return spec.mask == AttentionSpec::Mask::kWindow ? windowed : full;
  };
  return run_operations(graph(), FlowGraph::sizes(tokens, conditioning, std::ssize(songs_)), pairs, true);
}

}  // namespace patina
