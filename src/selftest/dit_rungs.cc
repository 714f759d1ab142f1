// The diffusion transformer's own rungs: the velocity alone, how timesteps weigh, what its target is, where crops lie.
#include <algorithm>
#include <cmath>

#include "selftest/measures.h"
#include "selftest/synthetic_dit.h"
#include "selftest/tables.h"
#include "selftest/trace.h"
#include "selftest/trial.h"
#include "train/flow_objective.h"

namespace patina {

namespace {

using Measured = std::vector<double>;

const SyntheticDit& dit(RungContext& context) {
  const auto* const model = dynamic_cast<const SyntheticDit*>(&context.model());
  PATINA_CHECK(model != nullptr, "not a diffusion transformer");
  return *model;
}

// --- T3: the forward part of training, and the velocity alone ---

// What an adapter changes inside a layer shows in these, whatever nodes it consists of.
std::vector<std::string> traced_places() {
  std::vector<std::string> places = {"norm_out", "proj_out"};
  for (int i = 0; i < SyntheticDit::kLayers; ++i)
    for (const char* what : {"self_attn_norm", "self.q", "self.k", "self.attn", "self_attn_gate", "cross_attn_norm",
                             "cross.q_norm", "cross.k_norm", "cross.attn", "mlp_norm", "mlp", "mlp_gate"})
      places.push_back(fmt::format("layers.{}.{}", i, what));
  return places;
}

// Rows of items that go through the graph as `batches` say.
Trace trace_of(RungContext& context, Adapter& adapter, const TrainableOptions& options,
               std::span<const Items> batches) {
  const auto built = context.model().build(&adapter, options);
  Executor executor(built->graph(), *context.parts.backend, context.pool);
  const float seed = 1;
  Trace trace;
  for (const Items& items : batches) {
    const Feed feed = built->feed(items, 0);
    for (const auto& [id, data] : feed.inputs) executor.bind(id, const_cast<void*>(data));
    if (options.gradients) executor.bind(built->differentiation().seed, const_cast<float*>(&seed));
    run_traced(executor, feed.sizes, traced_places(), "loss", trace);
  }
  return trace;
}

Measured measure_inference(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lora(), &dora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    Prelude(adapter.get(), *context.parts.backend, context.pool).run();
    const Trace training =
        trace_of(context, *adapter, {GradientOptions{.segments = 2}}, std::vector<Items>{{0, 1, 2, 3}});
    const Trace inference = trace_of(context, *adapter, {}, std::vector<Items>{{0}, {1}, {2}, {3}});
    measured[0] = larger(measured[0], worst_place(inference, training));
  }
  return measured;
}

// --- T8: how the timesteps of an optimizer step weigh ---

std::vector<double> expected_weights(std::span<const FlowDraw> draws, const FlowOptions& options) {
  std::vector<double> weights;
  double sum = 0;
  for (const FlowDraw& draw : draws) {
    const double t = std::min(std::max(draw.t, 1e-4), 1 - 1e-4);
    weights.push_back(
        options.snr_weighting ? std::min(options.snr_gamma, std::pow(1 - t, options.t_bias) / (t * (1 - t))) : 1);
    sum += weights.back();
  }
  for (double& weight : weights) weight *= static_cast<double>(draws.size()) / sum;
  return weights;
}

// |loss of a step in micro-batches of one song / the loss of all at once - 1|: a window is the step, whatever is in
// memory together.
double window_error(RungContext& context) {
  const SyntheticDit& model = dit(context);
  const auto adapter = disturbed_adapter(context, model.sites(), lora());
  const auto loss = [&](int64_t batch) {
    FlowTrainOptions options;
    options.batch = batch;
    options.step_songs = std::ssize(model.songs());
    FlowObjective objective(model.dit(), *adapter, model.songs(), {}, model.channel_weights(), options,
                            *context.parts.backend, context.pool);
    const std::vector<size_t> samples = {0, 1, 2, 3};
    return objective.run_step(1, samples, nullptr).loss_sum;
  };
  return relative_error(loss(1), loss(std::ssize(model.songs())));
}

Measured measure_weights(RungContext& context) {
  Measured measured = {0, 0, window_error(context)};
  std::vector<FlowOptions> variants(4);
  variants[1].snr_gamma = 2.5;
  variants[2].t_bias = 1.0;
  variants[3].snr_weighting = false;
  const RandomStream random(8, RandomUse::kTest, 0);
  uint64_t next = 0;
  for (const FlowOptions& options : variants)
    for (const size_t count : {1, 2, 5, 48}) {
      std::vector<FlowDraw> draws(count);
      for (FlowDraw& draw : draws) draw.t = random.uniform(next++);
      if (count > 2) {
        draws[0].t = 1.0;
        draws[1].t = 1e-5;
      }
      context.parts.weigh_draws(draws, options);
      std::vector<double> weights;
      double mean = 0;
      for (const FlowDraw& draw : draws) {
        weights.push_back(draw.weight);
        mean += draw.weight / static_cast<double>(count);
      }
      measured[0] = larger(measured[0], std::abs(mean - 1));
      measured[1] = larger(measured[1], relative_error(weights, expected_weights(draws, options)));
    }
  return measured;
}

// --- T9: what the target is ---

// Of noise - latents in the case below, computed apart from this program from the published definition of Philox.
constexpr double kMeanSquare = 4.889176096369079;

Measured measure_target(RungContext& context) {
  constexpr int64_t kFrames = 250, kChannels = SyntheticDit::kLatentChannels, kPatch = 2;
  constexpr double kTime = 0.375;
  const SyntheticDit& model = dit(context);
  const Song song = SyntheticSong{kFrames, 1, 200}.written(context.directory() / "target.safetensors");
  std::vector<float> latents(kFrames * kChannels);
  song.latents(0, kFrames, latents.data());
  FlowLayout layout = model.layout();
  const std::vector<float> even(kChannels, 1.0f);
  layout.channel_weights = even;
  const FlowDraw draw{0, 0, kFrames, kTime, false, false};
  FlowBatch batch;
  context.parts.fill_flow(batch, std::span(&song, 1), std::span(&draw, 1), layout);
  double squares = 0;
  std::vector<double> found, expected;
  for (int64_t f = 0; f < kFrames; ++f)
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto at = [&](const std::vector<float>& rows, int64_t channel) {
        const int64_t width = std::ssize(rows) / (kFrames / kPatch);
        return static_cast<double>(rows[static_cast<size_t>(f / kPatch * width + channel * kPatch + f % kPatch)]);
      };
      const double noisy = at(batch.input, SyntheticDit::kContextChannels + c), v = at(batch.target, c);
      squares += v * v / static_cast<double>(kFrames * kChannels);
      found.push_back(noisy - kTime * v);
      expected.push_back(static_cast<double>(latents[static_cast<size_t>(f * kChannels + c)]));
    }
  return {relative_error(squares, kMeanSquare), relative_error(found, expected)};
}

// --- T10: crops ---

// Crops of a song: mistakes, and how far the counts of their places are from even, in standard deviations of chi^2.
Measured crops(RungContext& context, const Song& song, int64_t crop) {
  constexpr int64_t kPatch = 2, kDraws = 3000;
  FlowOptions options;
  options.crop_frames = crop;
  const int64_t length = std::min(crop / kPatch * kPatch, song.frames()), last = song.frames() - length;
  std::vector<double> counts(static_cast<size_t>(last / kPatch + 1));
  double mistakes = 0;
  for (int64_t step = 1; step <= kDraws; ++step) {
    const FlowDraw draw = context.parts.draw_flow(song, 0, options, kPatch, 42, step);
    const bool good =
        draw.frames == length && draw.first_frame >= 0 && draw.first_frame <= last && draw.first_frame % kPatch == 0;
    mistakes += good ? 0 : 1;
    if (good) ++counts[static_cast<size_t>(draw.first_frame / kPatch)];
  }
  const double freedom = static_cast<double>(counts.size()) - 1, even = double{kDraws} / (freedom + 1);
  double chi_squares = 0;
  for (const double count : counts) {
    mistakes += count > 0 ? 0 : 1;
    chi_squares += (count - even) * (count - even) / even;
  }
  return {mistakes, freedom > 0 ? std::abs(chi_squares - freedom) / std::sqrt(2 * freedom) : 0};
}

Measured measure_crops(RungContext& context) {
  Measured measured = {0, 0};
  const auto add = [&](const Song& song, int64_t crop) {
    const Measured one = crops(context, song, crop);
    measured[0] += one[0];
    measured[1] = larger(measured[1], one[1]);
  };
  const Song odd = SyntheticSong{37, 1, 201}.written(context.directory() / "odd.safetensors"),
             even = SyntheticSong{40, 1, 202}.written(context.directory() / "even.safetensors");
  for (const int64_t crop : {2, 11, 36}) add(odd, crop);
  for (const int64_t crop : {8, 39}) add(even, crop);
  // What is no longer than a crop is whole, with a patch that is not full.
  FlowOptions options;
  for (const int64_t crop : {0, 38, 64}) {
    options.crop_frames = crop;
    const FlowDraw draw = context.parts.draw_flow(odd, 0, options, 2, 42, 1);
    measured[0] += draw.first_frame == 0 && draw.frames == odd.frames() ? 0 : 1;
  }
  return measured;
}

}  // namespace

Rungs dit_rungs() {
  static const std::vector<Rung> rungs = {
      {"T3",
       "training forward = forward alone, song by song, each named value",
       Repeats::kByType,
       {at_most(1e-4)},
       measure_inference},
      {"T8",
       "weights of a step's timesteps: mean 1, law, in micro-batches = at once",
       Repeats::kOnce,
       {at_most(1e-6, "mean from 1"), at_most(1e-6, "weights"), at_most(1e-6, "micro-batches")},
       measure_weights},
      {"T9",
       "target: its mean square is a stored value; noisy input - t target = latents",
       Repeats::kOnce,
       {at_most(1e-5, "mean square"), at_most(1e-5, "latents")},
       measure_target},
      {"T10",
       "crops: support, length, alignment: mistakes; evenness, standard deviations",
       Repeats::kOnce,
       {exactly_zero("mistakes"), at_most(3.0, "deviations")},
       measure_crops},
  };
  return rungs;
}

}  // namespace patina
