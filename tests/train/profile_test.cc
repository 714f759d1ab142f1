#include "graph/profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/tiny_run.h"
#include "train/estimate.h"

namespace patina::testing {
namespace {

double weights_of(const DecoderLayer& layer) {
  double sum = 0;
  for (const Tensor* weight : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
    sum += static_cast<double>(weight->shape.elements());
  return sum;
}

// 4 P_sites a token, 4 P_head a supervised token, 14 H C a visible pair and layer, 6 operations a token and parameter
// of the adapter; less what nothing reads: below the first layer's q, k and v no gradient goes on.
double operations_by_formula(const DecoderModel& model, int64_t rank, double tokens, double rows, double pairs) {
  const DecoderConfig& config = model.config();
  double sites = 0, adapter = 0;
  for (const DecoderLayer& layer : model.layers()) sites += weights_of(layer);
  for (const Site& site : layer_sites(model)) adapter += static_cast<double>(rank * (site.in + site.out));
  const DecoderLayer& first = model.layers()[0];
  double undone = 0;
  for (const Tensor* weight : {&first.q, &first.k, &first.v})
    undone += 2 * static_cast<double>(weight->shape.elements() + rank * weight->shape[1]);
  return (4 * sites + 6 * adapter - undone) * tokens + 4 * static_cast<double>(model.head().shape.elements()) * rows +
         14.0 * static_cast<double>(config.layers * config.heads * config.head_width) * pairs;
}

TEST(Profile, OperationsAreThoseOfTheFormula) {
  const TinyLm lm({.dtype = DType::kQ8_0, .layers = 3});
  const std::vector<Sequence> sequences = {random_sequence(41, 10, 1), random_sequence(18, 3, 2)};
  const double pairs = 40 * 41 / 2 + 17 * 18 / 2, rows = 31 + 15;
  const auto adapter = half_trained(layer_sites(lm.model), 4);
  ThreadPool pool(2);
  Trainer trainer = lm_trainer(lm.model, *adapter, sequences, {}, plain_options(2, 1e-3), cpu_backend(), pool);
  const double expected = operations_by_formula(lm.model, 4, 57, rows, pairs);
  const int64_t sizes[] = {57, 3, 2, 46};
  EXPECT_DOUBLE_EQ(run_operations(
                       trainer.objective().graph(), sizes, [&](const Node&) { return pairs; }, false),
                   expected);

  // What a run counts, step by step, is the same.
  Profile profile(trainer.objective().graph());
  Recorder recorder;
  trainer.run(
      recorder, [] { return false; }, &profile);
  double counted = 0;
  for (const Profile::Row& row : profile.rows()) counted += row.work.operations;
  EXPECT_DOUBLE_EQ(counted, 2 * expected);

  const TimeEstimate estimate =
      estimate_time(trainer, lm.model.layers()[1].products(), 512, Formulation::kFused, cpu_backend(), pool);
  EXPECT_DOUBLE_EQ(estimate.step_operations, expected);
  EXPECT_GT(estimate.gflops, 0);
  EXPECT_DOUBLE_EQ(estimate.total_ms, 2 * estimate.step_ms);
}

TEST(Profile, RowsAreAllTheTimeAndChangeNothing) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = {random_sequence(30, 10, 1), random_sequence(18, 3, 2)};
  ThreadPool pool(2);
  const auto trained = [&](bool profiled) {
    const auto adapter = half_trained(layer_sites(lm.model), 4);
    Trainer trainer = lm_trainer(lm.model, *adapter, sequences, {}, plain_options(3, 1e-3), cpu_backend(), pool);
    Profile profile(trainer.objective().graph());
    Recorder recorder;
    const TrainResult result = trainer.run(
        recorder, [] { return false; }, profiled ? &profile : nullptr);
    double sum = 0, steps = 0;
    for (const Profile::Row& row : profile.rows()) sum += row.ms;
    for (const StepReport& step : recorder.steps) steps += step.ms;
    EXPECT_NEAR(sum, profile.ms(), 1e-6 * sum);
    if (profiled) {
      EXPECT_GE(sum, steps);
      EXPECT_LE(sum, result.ms);
    } else {
      EXPECT_TRUE(profile.rows().empty());
    }
    const std::span<const float> values = adapter->parameters().values();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST(Profile, NamesWhatRunsWhere) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = {random_sequence(30, 10, 1)};
  const auto adapter = half_trained(layer_sites(lm.model), 4);
  ThreadPool pool(1);
  Trainer trainer = lm_trainer(lm.model, *adapter, sequences, {}, plain_options(2, 1e-3), cpu_backend(), pool);
  Profile profile(trainer.objective().graph());
  Recorder recorder;
  trainer.run(
      recorder, [] { return false; }, &profile);
  std::map<std::pair<std::string_view, Phase>, int64_t> calls;
  for (const Profile::Row& row : profile.rows()) calls[{row.op, row.phase}] = row.calls;
  EXPECT_EQ((calls[{"frozen_linear", Phase::kForward}]), 2 * 14);
  EXPECT_EQ((calls[{"frozen_linear", Phase::kBackward}]), 2 * 11);  // nothing learns below the first q, k and v
  EXPECT_EQ((calls[{"attention", Phase::kForward}]), 2 * 2);
  EXPECT_EQ((calls[{"attention_grad", Phase::kBackward}]), 2 * 2);
  EXPECT_EQ((calls[{"head_loss", Phase::kForward}]), 2);
  EXPECT_EQ((calls[{"data", Phase::kOutside}]), 2);
  EXPECT_EQ((calls[{"optimizer", Phase::kOutside}]), 2 * 2);
}

TEST(Profile, WorkDoneAgainIsTold) {
  const TinyLm lm({.layers = 3});
  const auto adapter = half_trained(layer_sites(lm.model), 4);
  const auto built = [&](int segments) {
    return build_loss_graph(lm.model, adapter.get(), {16, 1, 16}, GradientOptions{.segments = segments});
  };
  const auto once = built(1), again = built(3);
  const auto repeated = [](const LossGraph& graph) {
    const std::vector<Phase> all = phases(graph.graph);
    return std::count(all.begin(), all.end(), Phase::kRepeated);
  };
  EXPECT_EQ(repeated(*once), 0);
  EXPECT_GT(repeated(*again), 20);
  const int64_t sizes[] = {16, 2, 1, 16};
  const auto operations = [&](const LossGraph& graph, bool with_repeated) {
    return run_operations(
        graph.graph, sizes, [](const Node&) { return 136.0; }, with_repeated);
  };
  EXPECT_EQ(operations(*once, true), operations(*once, false));
  EXPECT_EQ(operations(*again, false), operations(*once, false));
  // Nearly all products of two layers of three: a third of the layers' forward and backward is forward of two.
  EXPECT_GT(operations(*again, true), 1.2 * operations(*once, true));
}

}  // namespace
}  // namespace patina::testing
