#include "graph/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "backend/cpu/cpu_backend.h"
#include "graph/executor.h"
#include "ops/cache_append.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/rms_norm.h"
#include "ops/view.h"

namespace patina {
namespace {

struct Life {
  int first = INT32_MAX, last = -1;
};

// From the node that makes it to its last use, over every value that shares a storage, worked out from the graph alone.
std::map<ValueId, Life> lives(const Graph& graph, const Plan& plan) {
  std::map<ValueId, Life> result;
  const auto use = [&](ValueId id, int node) {
    Life& life = result[plan.storage[static_cast<size_t>(id)]];
    life.first = std::min(life.first, node);
    life.last = std::max(life.last, node);
  };
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (const ValueId input : node.inputs)
      if (input != kNoValue) use(input, i);
    for (const ValueId output : node.outputs) use(output, i);
  }
  for (const ValueId output : graph.outputs()) use(output, static_cast<int>(graph.nodes().size()));
  return result;
}

void expect_no_overlap(const Graph& graph, const Plan& plan) {
  struct Range {
    int64_t begin, end;
    Life life;
  };
  std::vector<Range> ranges;
  for (const auto& [id, life] : lives(graph, plan)) {
    const int64_t offset = plan.offset_bytes[static_cast<size_t>(id)];
    if (graph.value(id).kind != ValueKind::kComputed) continue;
    ASSERT_GE(offset, 0) << graph.value(id).name;
    ranges.push_back({offset, offset + graph.maximum_bytes(id), life});
  }
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const size_t node = static_cast<size_t>(i);
    if (plan.scratch_bytes[node] > 0)
      ranges.push_back(
          {plan.scratch_offset_bytes[node], plan.scratch_offset_bytes[node] + plan.scratch_bytes[node], {i, i}});
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_LE(ranges[i].end, plan.arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = ranges[i].life.first <= ranges[j].life.last && ranges[j].life.first <= ranges[i].life.last;
      EXPECT_FALSE(together && ranges[i].begin < ranges[j].end && ranges[j].begin < ranges[i].end) << i << " and " << j;
    }
  }
}

class PlanTest : public testing::Test {
 protected:
  ValueId linear(ValueId x) { return frozen_linear(graph_, x, w_, kNoValue, "linear"); }
  Plan plan() { return plan_memory(graph_, cpu_backend(), 2); }

  static constexpr int64_t kWidth = 16;
  Graph graph_;
  std::vector<float> weight_ = std::vector<float>(kWidth * kWidth, 0.1f);
  ValueId w_ = graph_.frozen("w", dense(weight_.data(), DType::kF32, {kWidth, kWidth}));
  Extent tokens_ = graph_.symbol("T", 100);
  ValueId x_ = graph_.input("x", DType::kF32, {tokens_, kWidth});
  const int64_t value_bytes_ = 100 * kWidth * static_cast<int64_t>(sizeof(float));
};

TEST_F(PlanTest, LiveValuesNeverOverlap) {
  ValueId h = x_;
  std::vector<ValueId> kept;
  for (int i = 0; i < 20; ++i) {
    h = linear(h);
    if (i % 3 == 0) kept.push_back(h);
    if (i % 4 == 1) h = add(graph_, h, kept[static_cast<size_t>(i) % kept.size()], "add");
    if (i % 5 == 2) h = pad_columns(graph_, columns(graph_, h, 3, 7, "slice"), 2, kWidth, "pad");
  }
  for (const ValueId id : kept) h = add(graph_, id, h, "sum");
  graph_.mark_output(h);
  expect_no_overlap(graph_, plan());
}

// A transposed copy takes the bytes of its own type, and lives for its product only.
TEST_F(PlanTest, CopiesOfWeightsAreScratchOfTheirProducts) {
  constexpr int64_t kRows = 40;
  std::vector<float> stored(kRows * kWidth);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Graph graph;
    const ValueId w = graph.frozen("w", dense(stored.data(), dtype, {kRows, kWidth}));
    graph.mark_output(transposed_copy(graph, w, "w"));
    EXPECT_EQ(plan_memory(graph, cpu_backend(), 2).arena_bytes, bytes_of(dtype, kRows * kWidth));
  }
  const ValueId w = graph_.frozen("w", dense(stored.data(), DType::kBF16, {kRows, kWidth}));
  const ValueId dy = graph_.input("dy", DType::kF32, {tokens_, kRows});
  std::vector<int64_t> arena_bytes;
  ValueId dx = kNoValue;
  for (int i = 0; i < 3; ++i) {
    for (const FormulationName& row : kFormulations)
      dx = frozen_linear_gradient(graph_, dy, w, dx, "dx", row.formulation);
    arena_bytes.push_back(plan().arena_bytes);
  }
  graph_.mark_output(dx);
  expect_no_overlap(graph_, plan());
  EXPECT_EQ(plan().in_place_nodes, 3 * 3 - 1);
  EXPECT_EQ(arena_bytes[1], arena_bytes[2]) << "copies must not add up";
  int computed = 0;
  for (ValueId id = 0; id < graph_.values(); ++id) computed += graph_.value(id).dtype == DType::kBF16 && id != w;
  EXPECT_EQ(computed, 3);
}

TEST_F(PlanTest, AChainNeedsTwoValues) {
  ValueId h = x_;
  for (int i = 0; i < 10; ++i) h = pad_columns(graph_, h, 0, kWidth, "pad");
  graph_.mark_output(h);
  EXPECT_EQ(plan().arena_bytes, 2 * value_bytes_);
}

TEST_F(PlanTest, TakesOverWhatDies) {
  const ValueId a = linear(x_), b = linear(x_);
  const ValueId sum = add(graph_, a, b, "add");
  graph_.mark_output(sum);
  const Plan p = plan();
  EXPECT_EQ(p.in_place_nodes, 1);
  EXPECT_EQ(p.storage[static_cast<size_t>(sum)], a);
}

TEST_F(PlanTest, KeepsWhatIsReadLater) {
  const ValueId a = linear(x_), b = linear(x_);
  const ValueId sum = add(graph_, a, b, "add");
  graph_.mark_output(add(graph_, sum, a, "again"));
  const Plan p = plan();
  EXPECT_NE(p.storage[static_cast<size_t>(sum)], a);
}

TEST_F(PlanTest, KeepsOutputsAndInputs) {
  const ValueId a = linear(x_);
  graph_.mark_output(a);
  const ValueId sum = add(graph_, a, x_, "a"), other = add(graph_, x_, a, "b");
  graph_.mark_output(sum);
  graph_.mark_output(other);
  EXPECT_EQ(plan().in_place_nodes, 0);
}

// A product that adds to its own operand would read what it has overwritten.
TEST_F(PlanTest, NeverOverAnOperandThatIsAlsoRead) {
  const ValueId a = linear(x_);
  graph_.mark_output(frozen_linear(graph_, a, w_, a, "residual"));
  EXPECT_EQ(plan().in_place_nodes, 0);
}

TEST_F(PlanTest, NeverOverAPartOfAWiderValue) {
  const ValueId a = linear(x_);
  const ValueId left = columns(graph_, a, 0, kWidth / 2, "left"),
                right = columns(graph_, a, kWidth / 2, kWidth / 2, "right");
  graph_.mark_output(add(graph_, left, right, "add"));
  EXPECT_EQ(plan().in_place_nodes, 0);
}

TEST_F(PlanTest, StatesAreAlwaysTakenOver) {
  std::vector<float> cache(5 * kWidth, 0.0f), x(2 * kWidth, 1.0f);
  const int32_t position = 3;
  const ValueId state = graph_.state("cache", DType::kF32, {5, kWidth}, cache.data());
  const ValueId at = graph_.input("position", DType::kI32, {1});
  const ValueId after = cache_append(graph_, state, x_, at, "cache");
  EXPECT_EQ(plan().storage[static_cast<size_t>(after)], state);
  ThreadPool pool(1);
  Executor executor(graph_, cpu_backend(), pool);
  executor.bind(x_, x.data());
  executor.bind(at, const_cast<int32_t*>(&position));
  executor.run(std::vector<int64_t>{2});
  for (size_t i = 0; i < cache.size(); ++i) EXPECT_EQ(cache[i], i < 3 * kWidth ? 0.0f : 1.0f);
}

TEST_F(PlanTest, ExecutorRefusesWhatWasNotPlanned) {
  graph_.mark_output(linear(x_));
  ThreadPool pool(1);
  Executor executor(graph_, cpu_backend(), pool);
  EXPECT_THROW(executor.run(std::vector<int64_t>{1}), InternalError);  // x is not bound
  std::vector<float> x(100 * kWidth);
  executor.bind(x_, x.data());
  EXPECT_NO_THROW(executor.run(std::vector<int64_t>{100}));
  EXPECT_NO_THROW(executor.run(std::vector<int64_t>{0}));
  EXPECT_THROW(executor.run(std::vector<int64_t>{101}), InternalError);
  EXPECT_THROW(executor.run(std::vector<int64_t>{}), InternalError);
}

}  // namespace
}  // namespace patina
