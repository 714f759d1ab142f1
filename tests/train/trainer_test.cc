#include "train/lm_objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

std::vector<Sequence> four_sequences() {
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < 4; ++i) sequences.push_back(random_sequence(6 + static_cast<int>(i), 3, i));
  return sequences;
}

TEST(Trainer, TheSameRunGivesTheSameBytes) {
  const TinyLm lm({.dtype = DType::kQ4_K});
  const std::vector<Sequence> sequences = four_sequences();
  const auto bytes = [&](uint64_t seed, int threads) {
    Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = seed});
    LmTrainOptions options = plain_options(4, 1e-3);
    options.batch_tokens = 16;
    options.seed = seed;
    train(lm.model, adapter, sequences, options, threads);
    const auto file = lm.directory() / "adapter.gguf";
    write_adapter(AdapterFormat::kGguf, file, {adapter.sites(), "", {}}, base_of(lm.model));
    return read_file(file);
  };
  const std::string first = bytes(1, 1);
  EXPECT_TRUE(bytes(1, 1) == first);
  EXPECT_TRUE(bytes(1, 3) == first);
  EXPECT_FALSE(bytes(2, 1) == first);
}

TEST(Trainer, StepsOrEpochs) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();  // of 6 to 9 tokens
  const auto recorded = [&](LmTrainOptions options) {
    Adapter adapter(layer_sites(lm.model, {"q"}), {.rank = 2, .alpha = 4, .seed = 1});
    return train(lm.model, adapter, sequences, options);
  };
  LmTrainOptions by_steps = plain_options(5, 1e-3);
  by_steps.batch_tokens = 1;  // a sequence a step
  const Recorder steps = recorded(by_steps);
  ASSERT_EQ(steps.steps.size(), 5u);
  EXPECT_EQ(steps.steps[3].epoch, 1);
  EXPECT_EQ(steps.steps[4].epoch, 2);
  EXPECT_EQ(steps.steps[4].step, 5);
  EXPECT_EQ(steps.steps[4].total_steps, 5);
  ASSERT_EQ(steps.epochs.size(), 2u);

  LmTrainOptions by_epochs = plain_options(0, 1e-3);
  by_epochs.batch_tokens = 1;
  by_epochs.epochs = 3;
  const Recorder epochs = recorded(by_epochs);
  EXPECT_EQ(epochs.steps.size(), 12u);
  ASSERT_EQ(epochs.epochs.size(), 3u);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    int64_t tokens = 0, supervised = 0;
    double loss = 0;
    for (size_t i = 4 * epoch; i < 4 * epoch + 4; ++i) {
      tokens += epochs.steps[i].tokens;
      supervised += epochs.steps[i].supervised;
      loss += epochs.steps[i].loss * static_cast<double>(epochs.steps[i].supervised);
    }
    EXPECT_EQ(tokens, 6 + 7 + 8 + 9) << "every sequence, every epoch";
    EXPECT_EQ(supervised, 3 + 4 + 5 + 6);
    EXPECT_NEAR(epochs.epochs[epoch].loss, loss / static_cast<double>(supervised), 1e-12);
  }
}

TEST(Trainer, WarmUpBeginsAboveZero) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model, {"v"}), {.rank = 2, .alpha = 4, .seed = 1});
  LmTrainOptions options = plain_options(10, 1e-3);
  options.schedule = Schedule::kCosine;
  options.warmup = 0.4;
  const Recorder run = train(lm.model, adapter, sequences, options);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(run.steps[i].learning_rate, 1e-3 * static_cast<double>(i + 1) / 4, 1e-12);
  for (size_t i = 4; i < 10; ++i) EXPECT_LT(run.steps[i].learning_rate, run.steps[i - 1].learning_rate);
  EXPECT_GT(run.steps.back().learning_rate, 0.0);
  options.warmup = 2;  // steps
  Adapter again(layer_sites(lm.model, {"v"}), {.rank = 2, .alpha = 4, .seed = 1});
  EXPECT_NEAR(train(lm.model, again, sequences, options).steps[0].learning_rate, 5e-4, 1e-12);
}

TEST(Trainer, NonFiniteLossNamesStepAndOp) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  try {
    LmTrainOptions options = plain_options(10, 1e30);
    options.max_bad_steps = 1;
    train(lm.model, adapter, sequences, options);
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kNonFinite);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("step 2 of 10: ")) << text;
    EXPECT_NE(text.find("at layers.0."), std::string::npos) << text;
    EXPECT_NE(text.find("--lr"), std::string::npos) << text;
  }
  for (const float value : adapter.parameters().values()) ASSERT_TRUE(std::isfinite(value)) << "the step was applied";
}

TEST(Trainer, EpochsOfWhichNoStepWasAppliedHaveNoLoss) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  std::ranges::fill(adapter.parameters().values(), std::numeric_limits<float>::infinity());
  LmTrainOptions options = plain_options(3, 1e-3);
  options.max_bad_steps = 100;
  options.target_loss = 1.0;
  ThreadPool pool(1);
  Recorder recorder;
  Trainer trainer = lm_trainer(lm.model, adapter, sequences, {}, options, cpu_backend(), pool);
  const TrainResult result = trainer.run(recorder, [] { return false; });
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.reason, TrainResult::Reason::kCompleted) << "not the target";
  EXPECT_EQ(trainer.optimizer().steps(), 0);
  ASSERT_FALSE(recorder.epochs.empty());
  for (const EpochReport& epoch : recorder.epochs) {
    EXPECT_TRUE(std::isnan(epoch.loss)) << epoch.loss;
    EXPECT_FALSE(epoch.best);
  }
}

TEST(Evaluation, NonFiniteLossNamesTheOp) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  for (float& value : adapter.parameters().values()) value = std::numeric_limits<float>::quiet_NaN();
  ThreadPool pool(1);
  try {
    evaluate(lm.model, &adapter, sequences, 64, cpu_backend(), pool);
    FAIL() << "evaluated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kNonFinite);
    EXPECT_NE(std::string(error.what()).find("at layers.0."), std::string::npos) << error.what();
  }
}

TEST(Trainer, StreamedWeightsGiveTheSameBits) {
  for (const DType dtype : {DType::kBF16, DType::kQ4_K}) {
    const TinyLm lm({.dtype = dtype, .layers = 6});
    const std::vector<Sequence> sequences = four_sequences();
    LmTrainOptions options = plain_options(3, 1e-2);
    options.batch_tokens = 200;  // several micro-batches a step
    options.micro_tokens = 64;
    const AdapterOptions lora{.rank = 2, .alpha = 4, .seed = 1};
    Adapter mapped(layer_sites(lm.model), lora), streamed(layer_sites(lm.model), lora);
    train(lm.model, mapped, sequences, options);
    options.stream_weights = true;
    train(lm.model, streamed, sequences, options);
    EXPECT_TRUE(std::ranges::equal(mapped.parameters().values(), streamed.parameters().values()));
  }
}

TEST(Trainer, StreamedWeightsCountAsWhatIsResident) {
  const TinyLm lm({.layers = 8});
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  ThreadPool pool(1);
  LmTrainOptions options = plain_options(1, 1e-3);
  EXPECT_EQ(lm_trainer(lm.model, adapter, sequences, {}, options, cpu_backend(), pool).plan().weights_bytes,
            lm.model.file().file_bytes());
  options.stream_weights = true;
  const int64_t bytes = lm_trainer(lm.model, adapter, sequences, {}, options, cpu_backend(), pool).plan().weights_bytes;
  EXPECT_LT(bytes, lm.model.file().file_bytes() / 2);
  EXPECT_GT(bytes, lm.model.file().file_bytes() / 8);
}

TEST(Trainer, StopsAfterTheStepWhenAsked) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  Adapter adapter(layer_sites(lm.model, {"v"}), {.rank = 2, .alpha = 4, .seed = 1});
  ThreadPool pool(1);
  Trainer trainer = lm_trainer(lm.model, adapter, sequences, {}, plain_options(10, 1e-3), cpu_backend(), pool);
  Recorder recorder;
  const TrainResult result = trainer.run(recorder, [&] { return recorder.steps.size() == 3; });
  EXPECT_EQ(result.reason, TrainResult::Reason::kInterrupted);
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(recorder.steps.size(), 3u);
}

TEST(Trainer, GradientsAreClippedToTheirNorm) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = four_sequences();
  LmTrainOptions options = plain_options(1, 1e-3);
  options.grad_clip = 1e-3;
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  const Recorder run = train(lm.model, adapter, sequences, options);
  EXPECT_GT(run.steps[0].grad_norm, 1e-3);
  EXPECT_NEAR(run.steps[0].clip_scale * run.steps[0].grad_norm, 1e-3, 1e-9);
  double squares = 0;
  for (const float g : adapter.parameters().gradients()) squares += static_cast<double>(g) * static_cast<double>(g);
  EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-8);
}

}  // namespace
}  // namespace patina::testing
