#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

std::vector<Sequence> six_sequences() {
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < 6; ++i) sequences.push_back(random_sequence(6 + static_cast<int>(i), 3, i));
  return sequences;
}

// A run of 9 steps in epochs of three, shuffled.
LmTrainOptions options_for(OptimizerKind kind) {
  LmTrainOptions options = plain_options(9, 2e-3);
  options.schedule = Schedule::kCosine;
  options.warmup = 0.2;
  options.batch_tokens = 20;
  options.micro_tokens = 12;
  options.optimizer.kind = kind;
  return options;
}

struct Training {
  Training(const TinyLm& lm, const std::vector<Sequence>& sequences, const LmTrainOptions& options,
           std::span<const Sequence> validation = {}, AdapterKind kind = AdapterKind::kLora, double dropout = 0.0)
      : adapter(layer_sites(lm.model), {.kind = kind, .rank = 16, .alpha = 32, .dropout = dropout, .seed = 1}),
        trainer(lm_trainer(lm.model, adapter, sequences, validation, options, cpu_backend(), pool)) {}
  TrainResult until(int64_t step) {
    return trainer.run(recorder, [this, step] { return trainer.state().steps == step; });
  }
  void save(const std::filesystem::path& path) {
    write_checkpoint(path, adapter.parameters(), trainer.optimizer(), {trainer.state(), {{"lr", 1}}, {{"a", "b"}}});
  }
  void load(const std::filesystem::path& path) {
    const Checkpoint checkpoint(path);
    checkpoint.restore_parameters(adapter.parameters());
    checkpoint.restore_optimizer(trainer.optimizer());
    trainer.set_state(checkpoint.text().state);
  }
  bool same_values(Training& other) {
    return std::ranges::equal(std::as_bytes(adapter.parameters().values()),
                              std::as_bytes(other.adapter.parameters().values()));
  }

  ThreadPool pool{2};
  Adapter adapter;
  Trainer trainer;
  Recorder recorder;
};

class Resumed : public ::testing::TestWithParam<std::tuple<AdapterKind, OptimizerKind>> {};

TEST_P(Resumed, RunGoesOnToTheBitFromEveryStep) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  const auto [kind, optimizer] = GetParam();
  const LmTrainOptions options = options_for(optimizer);
  constexpr double kDropout = 0.1;
  Training straight(lm, sequences, options, {}, kind, kDropout);
  straight.until(0);
  ASSERT_EQ(straight.recorder.steps.size(), 9u);
  for (int64_t step = 1; step <= 9; ++step) {
    const auto path = lm.directory() / "checkpoint.safetensors";
    Training first(lm, sequences, options, {}, kind, kDropout), second(lm, sequences, options, {}, kind, kDropout);
    first.until(step);
    first.save(path);
    second.load(path);
    second.until(0);
    EXPECT_TRUE(second.same_values(straight)) << step;
    ASSERT_EQ(second.recorder.steps.size(), static_cast<size_t>(9 - step));
    for (const StepReport& report : second.recorder.steps) {
      const StepReport& expected = straight.recorder.steps[static_cast<size_t>(report.step - 1)];
      EXPECT_EQ(report.loss, expected.loss);
      EXPECT_EQ(report.learning_rate, expected.learning_rate);
      EXPECT_EQ(report.grad_norm, expected.grad_norm);
    }
    for (const EpochReport& report : second.recorder.epochs) {
      const EpochReport& expected = straight.recorder.epochs[static_cast<size_t>(report.epoch - 1)];
      EXPECT_EQ(report.loss, expected.loss) << step;
      EXPECT_EQ(report.mean_of_last_five, expected.mean_of_last_five);
      EXPECT_EQ(report.best, expected.best);
    }
    EXPECT_EQ(first.recorder.epochs.size() + second.recorder.epochs.size(), straight.recorder.epochs.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Resumed,
                         ::testing::Combine(::testing::Values(AdapterKind::kLora, AdapterKind::kDora,
                                                              AdapterKind::kLokr),
                                            ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kMuon)));

TEST(Checkpoint, ADamagedOneIsRefused) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  Training run(lm, sequences, options_for(OptimizerKind::kAdamW));
  run.until(2);
  const auto path = lm.directory() / "checkpoint.safetensors";
  run.save(path);
  EXPECT_EQ(Checkpoint(path).text().session.at("a"), "b");
  const std::string bytes = read_file(path);
  for (size_t part = 0; part < 40; ++part) {
    const size_t at = bytes.size() * part / 40;
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write_file(path, damaged);
    EXPECT_THROW(Checkpoint{path}, Error) << "bit flipped at " << at;
    write_file(path, bytes.substr(0, at));
    EXPECT_THROW(Checkpoint{path}, Error) << "cut at " << at;
  }
}

TEST(Checkpoint, OneOfOtherParametersIsRefused) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  Training run(lm, sequences, options_for(OptimizerKind::kAdamW));
  const auto path = lm.directory() / "checkpoint.safetensors";
  run.save(path);
  Adapter other(layer_sites(lm.model), {.rank = 8, .alpha = 16, .seed = 1});
  EXPECT_THROW(Checkpoint(path).restore_parameters(other.parameters()), Error);
}

TEST(Checkpoint, TheNewestAndTheBestAreKept) {
  const TempDir place;
  const CheckpointDirectory directory(place.path() / "checkpoints");
  EXPECT_TRUE(directory.steps().empty());
  std::filesystem::create_directory(place.path() / "checkpoints");
  for (const int64_t step : {3, 10, 200, 4000}) write_file(directory.file(step), "x");
  write_file(place.path() / "checkpoints" / "step-x.safetensors", "not ours");
  write_file(place.path() / "checkpoints" / ".step-00000005.safetensors.1-0.tmp", "half");
  EXPECT_EQ(directory.steps(), (std::vector<int64_t>{4000, 200, 10, 3}));
  directory.prune(2, 3);
  EXPECT_EQ(directory.steps(), (std::vector<int64_t>{4000, 200, 3}));
  directory.remove_unfinished();
  EXPECT_FALSE(std::filesystem::exists(place.path() / "checkpoints" / ".step-00000005.safetensors.1-0.tmp"));
  EXPECT_TRUE(std::filesystem::exists(place.path() / "checkpoints" / "step-x.safetensors"));
}

TEST(BadSteps, AreNotAppliedAndEndTheRunWhenThereAreManyInARow) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  LmTrainOptions options = options_for(OptimizerKind::kAdamW);
  options.max_bad_steps = 2;
  Training run(lm, sequences, options);
  run.until(3);
  const std::vector<float> good(run.adapter.parameters().values().begin(), run.adapter.parameters().values().end());
  const float kept = std::exchange(run.adapter.parameters().values()[0], std::numeric_limits<float>::quiet_NaN());
  struct Counter : Recorder {
    void on_bad_step(const BadStepReport& report) override { bad.push_back(report); }
    std::vector<BadStepReport> bad;
  } counter;
  try {
    run.trainer.run(counter, [] { return false; });
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kNonFinite);
    EXPECT_TRUE(std::string(error.what()).starts_with("step 5 of 9: the loss is nan")) << error.what();
  }
  ASSERT_EQ(counter.bad.size(), 2u);
  EXPECT_EQ(counter.bad[0].step, 4);
  EXPECT_NE(counter.bad[0].what.find("layers.0."), std::string::npos) << counter.bad[0].what;
  EXPECT_TRUE(counter.steps.empty());
  EXPECT_EQ(run.trainer.optimizer().steps(), 3);
  run.adapter.parameters().values()[0] = kept;
  EXPECT_TRUE(std::ranges::equal(good, run.adapter.parameters().values())) << "nothing was applied";
  run.trainer.run(counter, [] { return false; });
  EXPECT_EQ(counter.steps.size(), 4u) << "and the run can go on";
  EXPECT_EQ(run.trainer.state().bad_steps, 0);
}

TEST(Validation, IsMeasuredWhenAskedAndEndsTheRunWithoutProgress) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  struct Evals : Recorder {
    void on_eval(const EvalReport& report) override { evals.push_back(report); }
    std::vector<EvalReport> evals;
  };
  LmTrainOptions options = options_for(OptimizerKind::kAdamW);
  options.eval_every = 2;
  {
    Training run(lm, sequences, options, sequences);
    Evals seen;
    run.trainer.run(seen, [] { return false; });
    ASSERT_EQ(seen.evals.size(), 5u) << "steps 2, 4, 6, 8 and the last";
    EXPECT_EQ(seen.evals.back().step, 9);
    ThreadPool pool(1);
    EXPECT_EQ(seen.evals.back().loss, evaluate(lm.model, &run.adapter, sequences, 12, cpu_backend(), pool).mean_loss());
    EXPECT_TRUE(seen.evals.front().best);
  }
  options.learning_rate = 3.0;  // only gets worse
  options.patience = 2;
  options.steps = 40;
  Training run(lm, sequences, options, sequences);
  Evals seen;
  EXPECT_EQ(run.trainer.run(seen, [] { return false; }).reason, TrainResult::Reason::kPatience);
  EXPECT_LT(seen.steps.size(), 40u);
  EXPECT_EQ(run.trainer.run(seen, [] { return false; }).reason, TrainResult::Reason::kPatience) << "and stays ended";
}

// A sample of weight two is one that is there twice.
TEST(Weights, CountAsRepetition) {
  const TinyLm lm;
  const std::vector<Sequence> same = six_sequences();
  std::vector<Sequence> once = same, twice = same;
  once[1].weight = 2.0f;
  twice.push_back(twice[1]);
  LmTrainOptions options = plain_options(1, 1e-3);
  options.grad_clip = 0;
  Training weighted(lm, once, options), repeated(lm, twice, options), plain(lm, same, options);
  for (Training* run : {&weighted, &repeated, &plain}) run->until(0);
  EXPECT_NEAR(weighted.recorder.steps[0].loss, repeated.recorder.steps[0].loss, 1e-6);
  EXPECT_NEAR(weighted.recorder.steps[0].grad_norm, repeated.recorder.steps[0].grad_norm,
              1e-5 * repeated.recorder.steps[0].grad_norm);
  EXPECT_GT(std::abs(weighted.recorder.steps[0].loss - plain.recorder.steps[0].loss), 1e-4);
}

TEST(TargetLoss, EndsTheRun) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = six_sequences();
  LmTrainOptions options = options_for(OptimizerKind::kAdamW);
  options.target_loss = 100.0;
  Training run(lm, sequences, options);
  EXPECT_EQ(run.trainer.run(run.recorder, [] { return false; }).reason, TrainResult::Reason::kTarget);
  EXPECT_EQ(run.recorder.epochs.size(), 1u);
}

}  // namespace
}  // namespace patina::testing
