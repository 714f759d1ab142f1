#include "train/fit.h"

#include <gtest/gtest.h>

#include "support/tiny_run.h"

namespace patina::testing {
namespace {

class Fit : public ::testing::Test {
 protected:
  // The budget is what the mapped file leaves.
  MemoryFit fit(int64_t budget_bytes, FitChoices choices = {true, true, false}, const LmTrainOptions& options = {}) {
    return fit_memory(lm_.model, *adapter_, sequences_, options, choices, budget_bytes + lm_.model.file().file_bytes(),
                      cpu_backend(), 2);
  }

  TinyLm lm_{{.layers = 6}};
  std::unique_ptr<Adapter> adapter_ = half_trained(layer_sites(lm_.model));
  std::vector<Sequence> sequences_ = {random_sequence(60, 0, 1), random_sequence(50, 0, 2), random_sequence(33, 0, 3),
                                      random_sequence(64, 0, 4), random_sequence(64, 0, 5), random_sequence(64, 0, 6)};
};

TEST_F(Fit, TakesTheFastestSettingThatFits) {
  const MemoryFit free = fit(int64_t{1} << 40);
  EXPECT_TRUE(free.fits);
  EXPECT_EQ(free.segments, 1);
  EXPECT_EQ(free.micro, 512);
  // One byte less each time: more recompute, then smaller micro-batches, until nothing is left.
  MemoryFit last = free;
  std::vector<int> segments;
  for (int i = 0; i < 20; ++i) {
    const MemoryFit next = fit(last.arena_bytes - 1);
    if (!next.fits) {
      EXPECT_EQ(next.arena_bytes, last.arena_bytes) << "the smallest that there is";
      break;
    }
    EXPECT_LT(next.arena_bytes, last.arena_bytes);
    EXPECT_TRUE(next.segments > last.segments || (next.segments == 6 && next.micro < last.micro));
    segments.push_back(next.segments);
    last = next;
  }
  EXPECT_EQ(last.segments, 6);
  EXPECT_EQ(last.micro, 64) << "the longest sequence";
  EXPECT_GT(segments.size(), 3u);
  EXPECT_EQ(segments.front(), 2);
}

TEST_F(Fit, LeavesAloneWhatWasAskedFor) {
  LmTrainOptions options;
  options.micro_tokens = 128;
  const MemoryFit tokens = fit(1, {true, false, false}, options);
  EXPECT_FALSE(tokens.fits);
  EXPECT_EQ(tokens.micro, 128);
  EXPECT_EQ(tokens.segments, 6);
  options.gradients.segments = 2;
  const MemoryFit nothing = fit(1, {false, false, false}, options);
  EXPECT_FALSE(nothing.fits);
  EXPECT_EQ(nothing.segments, 2);
}

TEST_F(Fit, StreamsWhereNothingElseFits) {
  const MemoryFit least = fit(1, {true, true, false});
  ASSERT_FALSE(least.fits);
  EXPECT_FALSE(least.stream_weights);
  const MemoryFit mapped = fit(least.arena_bytes, {true, true, true});
  EXPECT_TRUE(mapped.fits);
  EXPECT_FALSE(mapped.stream_weights);
  const MemoryFit streamed = fit(least.arena_bytes - 1, {true, true, true});
  EXPECT_TRUE(streamed.fits);
  EXPECT_TRUE(streamed.stream_weights);
  EXPECT_LT(streamed.weights_bytes, lm_.model.file().file_bytes());
  const MemoryFit smallest = fit(-lm_.model.file().file_bytes(), {true, true, true});
  EXPECT_FALSE(smallest.fits);
  EXPECT_TRUE(smallest.stream_weights);
  EXPECT_LT(smallest.weights_bytes + smallest.arena_bytes, least.weights_bytes + least.arena_bytes);
}

// What was promised is what the trainer plans, and the adapter is the same to the bit.
TEST_F(Fit, TrainerTakesWhatWasPromised) {
  std::vector<float> first;
  for (const int segments : {1, 3, 6}) {
    LmTrainOptions options = plain_options(2, 1e-2);
    options.gradients.segments = segments;
    options.stream_weights = segments > 1;
    const MemoryFit promised = fit(int64_t{1} << 40, {false, false, false}, options);
    const auto adapter = half_trained(layer_sites(lm_.model));
    ThreadPool pool(2);
    Recorder recorder;
    Trainer trainer = lm_trainer(lm_.model, *adapter, sequences_, {}, options, cpu_backend(), pool);
    EXPECT_EQ(trainer.plan().arena_bytes, promised.arena_bytes);
    EXPECT_EQ(trainer.plan().weights_bytes, promised.weights_bytes);
    EXPECT_EQ(promised.weights_bytes < lm_.model.file().file_bytes(), options.stream_weights);
    trainer.run(recorder, [] { return false; });
    const std::vector<float> values(adapter->parameters().values().begin(), adapter->parameters().values().end());
    if (first.empty()) first = values;
    EXPECT_EQ(values, first) << segments;
  }
}

}  // namespace
}  // namespace patina::testing
