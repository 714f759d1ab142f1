#include "train/flow_matching.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/scalar_math.h"

namespace patina {

namespace {

// Streams of numbers of a song in a step.
enum Stream : uint32_t { kNoiseStream, kTimeStream, kCropStream, kConditionStream };

// t = shift u / (1 + (shift - 1) u) for u = 1, 7/8, ..., 1/8 and shift 3.
constexpr double kTurboSteps[] = {1.0,       2.625 / 2.75, 2.25 / 2.5, 1.875 / 2.25,
                                  1.5 / 2.0, 1.125 / 1.75, 0.75 / 1.5, 0.375 / 1.25};
constexpr int kMostRejections = 10000;
constexpr double kLeastTime = 1e-5;

RandomStream stream(uint64_t seed, Stream which, int64_t step, size_t song) {
  return {seed, RandomUse::kNoise, which, static_cast<uint32_t>(step), static_cast<uint32_t>(song)};
}

std::vector<double> turbo_steps(const FlowOptions& options) {
  std::vector<double> steps;
  for (const double t : kTurboSteps)
    if (t >= options.t_min && t <= options.t_max) steps.push_back(t);
  return steps;
}

// Negative where nothing was found.
double draw_time(const FlowOptions& options, const RandomStream& random) {
  if (options.turbo_steps) {
    const std::vector<double> steps = turbo_steps(options);
    return steps.empty() ? -1.0 : steps[random.below(steps.size(), 0)];
  }
  for (uint64_t i = 0; i < kMostRejections; ++i) {
    const double t = 1.0 / (1.0 + exact_exp(-(options.mu + options.sigma * random.normal(i))));
    if (t >= options.t_min && t <= options.t_max) return std::clamp(t, kLeastTime, 1.0 - kLeastTime);
  }
  return -1.0;
}

}  // namespace

void check_timesteps(const FlowOptions& options) {
  // A hundred draws all succeed unless the window holds less than about a thousandth of the law.
  for (uint32_t i = 0; i < 100; ++i)
    if (draw_time(options, RandomStream(1, RandomUse::kNoise, kTimeStream, i)) < 0.0)
      fail(Error::Kind::kUsage,
           "--t-min {} and --t-max {} leave nothing of the timesteps ({}): widen the window or move the law with "
           "--timestep-mu",
           options.t_min, options.t_max,
           options.turbo_steps ? "the eight turbo steps"
                               : fmt::format("logistic of {} + {} z", options.mu, options.sigma));
}

double flow_snr(double t, const FlowOptions& options) {
  constexpr double kLeast = 1e-4;
  t = std::clamp(t, kLeast, 1.0 - kLeast);
  return std::min(options.snr_gamma, exact_pow(1.0 - t, options.t_bias) / (t * (1.0 - t)));
}

FlowDraw draw_flow(const Song& song, size_t index, const FlowOptions& options, int64_t patch, uint64_t seed,
                   int64_t step) {
  FlowDraw draw{};
  draw.song = index;
  draw.frames = song.frames();
  const int64_t crop = options.crop_frames / patch * patch;
  if (options.crop_frames > 0 && crop < song.frames()) {
    draw.frames = std::max(crop, patch);
    const uint64_t places = static_cast<uint64_t>((song.frames() - draw.frames) / patch + 1);
    draw.first_frame = patch * static_cast<int64_t>(stream(seed, kCropStream, step, index).below(places, 0));
  }
  draw.t = draw_time(options, stream(seed, kTimeStream, step, index));
  PATINA_CHECK(draw.t >= 0.0, "no timestep in [{}, {}]", options.t_min, options.t_max);
  const RandomStream conditions = stream(seed, kConditionStream, step, index);
  draw.unconditional = conditions.uniform(0) < options.unconditional;
  draw.genre = song.has_genre() && conditions.uniform(1) < options.genre;
  return draw;
}

void weigh_draws(std::span<FlowDraw> draws, const FlowOptions& options) {
  double sum = 0.0;
  for (FlowDraw& draw : draws) {
    draw.weight = options.snr_weighting ? flow_snr(draw.t, options) : 1.0;
    sum += draw.weight;
  }
  for (FlowDraw& draw : draws) draw.weight /= sum / static_cast<double>(draws.size());
}

int64_t conditioning_tokens(const Song& song, const FlowDraw& draw) { return song.conditioning_tokens(draw.genre); }

namespace {

// The patches of one draw: from frames [frames, channels] to rows of channel by channel, P frames each.
class Patches {
 public:
  Patches(std::vector<float>& rows, int64_t tokens, int64_t channels, int64_t patch)
      : channels_(channels), patch_(patch), first_(rows.size()), rows_(rows) {
    rows.resize(first_ + static_cast<size_t>(tokens * channels * patch), 0.0f);
  }
  float& at(int64_t frame, int64_t channel) const {
    return rows_[first_ + static_cast<size_t>(frame / patch_ * channels_ * patch_ + channel * patch_ + frame % patch_)];
  }

 private:
  int64_t channels_, patch_;
  size_t first_;
  std::vector<float>& rows_;
};

void add_frames(FlowBatch& batch, const Song& song, const FlowDraw& draw, const FlowLayout& layout) {
  const DitConfig& config = layout.config;
  const int64_t channels = config.latent_channels, around = config.context_channels, tokens = draw.tokens(config.patch);
  const Patches input(batch.input, tokens, config.in_channels(), config.patch),
      target(batch.target, tokens, channels, config.patch), weight(batch.weight, tokens, channels, config.patch);
  const RandomStream noise = stream(layout.seed, kNoiseStream, layout.noise_step, draw.song);
  std::vector<float> latents(static_cast<size_t>(channels)), context(static_cast<size_t>(around));
  for (int64_t f = 0; f < draw.frames; ++f) {
    const int64_t frame = draw.first_frame + f;
    song.latents(frame, 1, latents.data());
    song.context(frame, 1, context.data());
    for (int64_t c = 0; c < around; ++c) input.at(f, c) = context[static_cast<size_t>(c)];
    for (int64_t c = 0; c < channels; ++c) {
      const double x0 = static_cast<double>(latents[static_cast<size_t>(c)]),
                   x1 = noise.normal(static_cast<uint64_t>(frame * channels + c));
      input.at(f, around + c) = static_cast<float>(draw.t * x1 + (1.0 - draw.t) * x0);
      target.at(f, c) = static_cast<float>(x1 - x0);
      weight.at(f, c) =
          static_cast<float>(draw.weight * static_cast<double>(layout.channel_weights[static_cast<size_t>(c)]));
    }
  }
}

void add_conditioning(FlowBatch& batch, const Song& song, const FlowDraw& draw, const FlowLayout& layout) {
  const int64_t tokens = conditioning_tokens(song, draw), width = layout.config.encoder_width;
  const size_t begin = batch.conditioning.size();
  batch.conditioning.resize(begin + static_cast<size_t>(tokens * width));
  if (!draw.unconditional) {
    song.conditioning(draw.genre, batch.conditioning.data() + begin);
    return;
  }
  PATINA_CHECK(std::ssize(layout.null_conditioning) == width, "{} numbers of no conditioning",
               layout.null_conditioning.size());
  for (int64_t e = 0; e < tokens; ++e)
    std::ranges::copy(layout.null_conditioning, batch.conditioning.data() + begin + e * width);
}

void add_time(std::vector<float>& sinusoids, double t) {
  sinusoids.resize(sinusoids.size() + static_cast<size_t>(kTimeChannels));
  time_sinusoid(t, sinusoids.data() + sinusoids.size() - kTimeChannels);
}

}  // namespace

void fill(FlowBatch& batch, std::span<const Song> songs, std::span<const FlowDraw> draws, const FlowLayout& layout) {
  for (std::vector<float>* floats :
       {&batch.input, &batch.conditioning, &batch.times, &batch.differences, &batch.target, &batch.weight})
    floats->clear();
  for (std::vector<int32_t>* ints : {&batch.positions, &batch.songs, &batch.first, &batch.samples,
                                     &batch.conditioning_samples, &batch.conditioning_positions})
    ints->clear();
  batch.offsets.assign(1, 0);
  batch.conditioning_offsets.assign(1, 0);
  batch.frames = 0;
  for (size_t b = 0; b < draws.size(); ++b) {
    const FlowDraw& draw = draws[b];
    const Song& song = songs[draw.song];
    const auto tokens = static_cast<int32_t>(draw.tokens(layout.config.patch)),
               conditions = static_cast<int32_t>(conditioning_tokens(song, draw));
    add_frames(batch, song, draw, layout);
    add_conditioning(batch, song, draw, layout);
    add_time(batch.times, draw.t);
    add_time(batch.differences, 0.0);  // r = t
    const auto sample = static_cast<int32_t>(draw.song);
    for (int32_t t = 0; t < tokens; ++t) batch.positions.push_back(t);
    batch.songs.insert(batch.songs.end(), static_cast<size_t>(tokens), static_cast<int32_t>(b));
    batch.samples.insert(batch.samples.end(), static_cast<size_t>(tokens), sample);
    for (int32_t e = 0; e < conditions; ++e) batch.conditioning_positions.push_back(e);
    batch.conditioning_samples.insert(batch.conditioning_samples.end(), static_cast<size_t>(conditions), sample);
    batch.offsets.push_back(batch.offsets.back() + tokens);
    batch.conditioning_offsets.push_back(batch.conditioning_offsets.back() + conditions);
    batch.first.push_back(0);
    batch.frames += draw.frames;
  }
}

}  // namespace patina
