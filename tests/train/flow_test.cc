// Flow matching: what is drawn, how batches are laid out, and training on them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "support/song_files.h"
#include "support/temp_dir.h"
#include "support/tiny_dit.h"
#include "train/flow_objective.h"

namespace patina::testing {
namespace {

// A tiny model with songs.
class Music {
 private:
  TempDir directory_;

 public:
  explicit Music(const std::vector<int64_t>& frames = {40, 31, 22}, const TinyDit& tiny = {}, bool shuffled = false)
      : model(DitModel::load(write_tiny_dit(directory_.path() / "model.safetensors", tiny))) {
    const std::filesystem::path songs_directory = directory_.path() / "songs";
    std::filesystem::create_directory(songs_directory);
    for (size_t i = 0; i < frames.size(); ++i) {
      SongFile file;
      file.frames = frames[i];
      file.conditioning = 3 + static_cast<int64_t>(i);
      file.genre = i == 1;
      file.shuffled = shuffled;
      write_song(songs_directory / fmt::format("{}.safetensors", i), static_cast<uint32_t>(i), file);
    }
    songs = load_songs(songs_directory, {4, 8, 24}, 0);
  }
  const std::filesystem::path& directory() const { return directory_.path(); }

  const DitModel model;
  SongSet songs;
  const std::vector<float> channels = std::vector<float>(4, 1.0f);
};

// In the middle of its training.
std::unique_ptr<Adapter> trained(const DitModel& model, const AdapterOptions& options) {
  auto adapter = std::make_unique<Adapter>(model.sites(), options);
  ParameterStore& store = adapter->parameters();
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const std::vector<float> values = named_floats(store.slices()[i].name, store.slices()[i].shape.elements(), 0.2);
    std::copy(values.begin(), values.end(), store.value(i));
  }
  return adapter;
}

struct Step {
  double loss;
  std::vector<float> gradient;
};

Step run_step(const Music& music, const AdapterOptions& kind, const FlowTrainOptions& options,
              const std::vector<size_t>& which, int threads = 2) {
  ThreadPool pool(threads);
  const auto adapter = trained(music.model, kind);
  FlowObjective objective(music.model, *adapter, music.songs.songs, {}, music.channels, options, cpu_backend(), pool);
  const StepLoss loss = objective.run_step(3, which, nullptr);
  EXPECT_EQ(loss.not_finite, "");
  const std::span<const float> gradients = adapter->parameters().gradients();
  return {loss.loss_sum / loss.weight_sum, {gradients.begin(), gradients.end()}};
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

const AdapterOptions kLora{.kind = AdapterKind::kLora, .rank = 4, .alpha = 8.0f};
const AdapterOptions kLokr{.kind = AdapterKind::kLokr, .rank = 4, .alpha = 4.0f, .factor = 4};

TEST(Flow, CropsAreAlignedAndUniform) {
  const Music music({40});
  const Song& song = music.songs.songs[0];
  FlowOptions options;
  options.crop_frames = 33;  // 32, in whole patches: starts 0, 2, 4, 6, 8
  std::map<int64_t, int> starts;
  constexpr int kDraws = 5000;
  for (int step = 1; step <= kDraws; ++step) {
    const FlowDraw draw = draw_flow(song, 0, options, 2, 5, step);
    EXPECT_EQ(draw.frames, 32);
    ++starts[draw.first_frame];
  }
  ASSERT_EQ(starts.size(), 5u);
  EXPECT_EQ(starts.rbegin()->first, 8);
  const double expected = kDraws / 5.0, deviation = std::sqrt(kDraws * 0.2 * 0.8);
  for (const auto& [start, count] : starts) {
    EXPECT_EQ(start % 2, 0);
    EXPECT_NEAR(count, expected, 4 * deviation) << start;
  }
  options.crop_frames = 64;
  EXPECT_EQ(draw_flow(song, 0, options, 2, 5, 1).frames, 40);
}

TEST(Flow, TimestepsFollowTheirLaw) {
  const Music music({40, 40});
  FlowOptions options;
  double logits = 0, squares = 0;
  int unconditional = 0, genre = 0;
  constexpr int kDraws = 4000;
  for (int step = 1; step <= kDraws; ++step) {
    const FlowDraw draw = draw_flow(music.songs.songs[1], 1, options, 2, 9, step);
    const double z = std::log(draw.t / (1 - draw.t));
    logits += z / kDraws;
    squares += z * z / kDraws;
    unconditional += draw.unconditional;
    genre += draw.genre;
  }
  EXPECT_NEAR(logits, -0.4, 0.06);
  EXPECT_NEAR(squares - logits * logits, 1.0, 0.1);
  EXPECT_NEAR(unconditional / static_cast<double>(kDraws), 0.15, 0.025);
  EXPECT_NEAR(genre / static_cast<double>(kDraws), 0.3, 0.03);
  options.t_min = 0.5;
  options.t_max = 0.8;
  for (int step = 1; step < 200; ++step) {
    const FlowDraw draw = draw_flow(music.songs.songs[0], 0, options, 2, 9, step);
    EXPECT_GE(draw.t, 0.5);
    EXPECT_LE(draw.t, 0.8);
    EXPECT_FALSE(draw.genre);  // the song has none
  }
  options.turbo_steps = true;
  std::set<int> steps;
  for (int step = 1; step < 200; ++step)
    steps.insert(static_cast<int>(draw_flow(music.songs.songs[0], 0, options, 2, 9, step).t * 1e4));
  EXPECT_EQ(steps, (std::set<int>{5000, 6428, 7500}));
  options.turbo_steps = false;
  options.mu = -30;
  EXPECT_THROW(check_timesteps(options), Error);
}

TEST(Flow, WeightsHaveTheMeanOneOverTheStep) {
  FlowOptions options;
  std::vector<FlowDraw> draws;
  for (const double t : {0.00001, 0.2, 0.5, 0.9, 1.0}) draws.push_back({0, 0, 10, t, false, false});
  weigh_draws(draws, options);
  double sum = 0;
  for (const FlowDraw& draw : draws) sum += draw.weight;
  EXPECT_NEAR(sum / 5, 1.0, 1e-12);
  EXPECT_NEAR(draws[2].weight / draws[1].weight, std::sqrt(0.5) / 0.25 / std::min(5.0, std::sqrt(0.8) / 0.16), 1e-12);
  EXPECT_DOUBLE_EQ(draws[0].weight / draws[1].weight, 5.0 / 5.0);  // both at the cap of 5
  options.snr_weighting = false;
  weigh_draws(draws, options);
  EXPECT_EQ(draws[0].weight, 1.0);
}

TEST(Flow, TargetsAndInputsAreOfTheFlow) {
  const Music music({31});
  const DitConfig& config = music.model.config();
  FlowDraw draw{0, 2, 29, 0.25, false, false};
  draw.weight = 2.0;
  FlowBatch batch;
  const std::vector<float> weights = {1.0f, 2.0f, 3.0f, 4.0f};
  fill(batch, music.songs.songs, std::span(&draw, 1), {config, weights, {}, 4, 7});
  ASSERT_EQ(batch.positions.size(), 15u);  // the last patch is half empty
  std::vector<float> latent(4);
  for (int64_t f = 0; f < 30; ++f)
    for (int64_t c = 0; c < 4; ++c) {
      const size_t out = static_cast<size_t>(f / 2 * 8 + c * 2 + f % 2),
                   in = static_cast<size_t>(f / 2 * 24 + (8 + c) * 2 + f % 2);
      if (f == 29) {
        EXPECT_EQ(batch.weight[out], 0.0f);
        EXPECT_EQ(batch.target[out], 0.0f);
        EXPECT_EQ(batch.input[in], 0.0f);
        continue;
      }
      music.songs.songs[0].latents(2 + f, 1, latent.data());
      const double x0 = static_cast<double>(latent[static_cast<size_t>(c)]),
                   x1 = static_cast<double>(batch.target[out]) + x0;
      EXPECT_NEAR(batch.input[in], 0.25 * x1 + 0.75 * x0, 1e-6);
      EXPECT_EQ(batch.weight[out], 2.0f * weights[static_cast<size_t>(c)]);
    }
  // Noise belongs to the frame, wherever the crop begins.
  FlowBatch other;
  FlowDraw later = draw;
  later.first_frame = 10;
  later.frames = 10;
  fill(other, music.songs.songs, std::span(&later, 1), {config, weights, {}, 4, 7});
  EXPECT_EQ(other.target[0], batch.target[4 * 8]);
  draw.unconditional = true;
  fill(other, music.songs.songs, std::span(&draw, 1), {config, weights, music.model.null_conditioning(), 4, 7});
  ASSERT_EQ(other.conditioning.size(), 3u * 24);
  for (size_t i = 0; i < other.conditioning.size(); ++i)
    EXPECT_EQ(other.conditioning[i], music.model.null_conditioning()[i % 24]);
}

TEST(Flow, BatchesOfSongsAreTheSumOfSingleSongs) {
  const Music music;
  for (const AdapterOptions& kind : {kLora, kLokr}) {
    FlowTrainOptions options;
    options.batch = 1;
    const Step singles = run_step(music, kind, options, {2, 0, 1});
    for (const int64_t batch : {2, 3}) {
      options.batch = batch;
      const Step together = run_step(music, kind, options, {2, 0, 1});
      EXPECT_NEAR(together.loss, singles.loss, 1e-6 * singles.loss);
      EXPECT_LE(relative_difference(together.gradient, singles.gradient), 1e-5);
    }
  }
}

TEST(Flow, ThreadsAndRecomputeChangeNoBit) {
  const Music music;
  FlowTrainOptions options;
  options.batch = 2;
  const Step plain = run_step(music, kLokr, options, {0, 1, 2}, 1);
  for (const int threads : {2, 3})
    for (const int segments : {1, 2}) {
      options.gradients.segments = segments;
      const Step again = run_step(music, kLokr, options, {0, 1, 2}, threads);
      EXPECT_EQ(again.loss, plain.loss);
      EXPECT_EQ(again.gradient, plain.gradient);
    }
}

TEST(Flow, FormulationsAgree) {
  TinyDit tiny;
  tiny.dtype = DType::kBF16;
  const Music music({40, 31}, tiny);
  FlowTrainOptions options;
  const Step fused = run_step(music, kLora, options, {0, 1});
  for (const Formulation formulation : {Formulation::kMm, Formulation::kOutprod}) {
    options.gradients.formulation = formulation;
    EXPECT_LE(relative_difference(run_step(music, kLora, options, {0, 1}).gradient, fused.gradient), 1e-5);
  }
}

TEST(Flow, ValidationDoesNotDependOnTheRun) {
  const Music music;
  ThreadPool pool(2);
  const auto adapter = trained(music.model, kLora);
  std::vector<double> losses;
  for (const uint64_t seed : {1, 2}) {
    FlowTrainOptions options;
    options.seed = seed;
    options.flow.snr_weighting = seed == 1;
    FlowObjective objective(music.model, *adapter, music.songs.songs, music.songs.songs, music.channels, options,
                            cpu_backend(), pool);
    const ValidationLoss loss = objective.validate();
    EXPECT_EQ(loss.figures.size(), 5u);
    losses.push_back(loss.loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Flow, EpochsHoldEverySongOnce) {
  const Music music({10, 12, 14, 16, 18});
  ThreadPool pool(1);
  const auto adapter = trained(music.model, kLora);
  FlowTrainOptions options;
  options.step_songs = 2;
  const FlowObjective objective(music.model, *adapter, music.songs.songs, {}, music.channels, options, cpu_backend(),
                                pool);
  const auto steps = objective.plan_epoch(1);
  ASSERT_EQ(steps.size(), 3u);
  std::set<size_t> seen;
  for (const auto& step : steps) seen.insert(step.begin(), step.end());
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_EQ(steps, objective.plan_epoch(1));
  EXPECT_NE(steps, objective.plan_epoch(2));
}

}  // namespace
}  // namespace patina::testing
