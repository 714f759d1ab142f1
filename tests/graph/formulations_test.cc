// Formulations as a policy of differentiation: what a graph holds then, and where mm gives way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "backend/cpu/cpu_backend.h"
#include "graph/differentiate.h"
#include "graph/executor.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "support/concat.h"
#include "support/random_weight.h"

namespace patina {
namespace {

int64_t occurrences(const std::string& text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Two frozen products of one trained value, joined side by side before a third: the gradients of the first two arrive
// as slices of columns, that of the third as it was computed. With `sliced` off, a sum takes the place of the join.
struct Network {
  static constexpr int64_t kTokens = 5, kWidth = 32, kLeft = 6, kRight = 10;

  Network(Formulation formulation, DType dtype = DType::kBF16, bool sliced = true) {
    const ValueId a = graph.trainable("A", {kWidth, kWidth}, a_data.data());
    const ValueId da = graph.state("dA", DType::kF32, {kWidth, kWidth}, da_data.data());
    const ValueId x = graph.frozen("x", dense(x_data.data(), DType::kF32, {kTokens, kWidth}));
    const ValueId h = matmul(graph, x, a, kNoValue, 1, true, "h");
    const auto frozen = [&](int64_t rows, int64_t columns) {
      stored.push_back(random_weight(dtype, rows, columns, stored.size()));
      return graph.frozen("w", dense(stored.back().data(), dtype, {rows, columns}));
    };
    const int64_t right = sliced ? kWidth - kLeft : kWidth, left = sliced ? kLeft : kWidth;
    const ValueId first = frozen_linear(graph, h, frozen(left, kWidth), kNoValue, "left");
    const ValueId second = frozen_linear(graph, h, frozen(right, kWidth), kNoValue, "right");
    const ValueId joined = sliced ? concat_columns(graph, first, second, "join") : add(graph, first, second, "join");
    const ValueId y = frozen_linear(graph, joined, frozen(kRight, kWidth), kNoValue, "last");
    const ValueId flat = reshape(graph, y, {1, kTokens * kRight}, "L");
    const ValueId c = graph.frozen("c", dense(c_data.data(), DType::kF32, {1, kTokens * kRight}));
    const ValueId loss = reshape(graph, matmul(graph, flat, c, kNoValue, 1, true, "L"), {1}, "L");
    result = differentiate(graph, loss, {{a, da}}, {}, formulation);
  }

  std::vector<float> run() {
    ThreadPool pool(2);
    Executor executor(graph, cpu_backend(), pool);
    float seed = 1;
    executor.bind(result.seed, &seed);
    executor.run({});
    return da_data;
  }

  static std::vector<float> numbers(size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = 0.01f * static_cast<float>((i * 37 + count) % 101) - 0.5f;
    return values;
  }
  std::vector<float> a_data = numbers(kWidth * kWidth), x_data = numbers(kTokens * kWidth),
                     c_data = numbers(kTokens * kRight), da_data = std::vector<float>(kWidth * kWidth);
  std::vector<std::vector<std::byte>> stored;
  Graph graph;
  Differentiation result;
};

TEST(Formulations, NamesAreThoseOfTheTable) {
  for (const FormulationName& row : kFormulations) EXPECT_EQ(name(row.formulation), row.name);
}

TEST(Formulations, EachEmitsItsOwnNodes) {
  struct {
    Formulation formulation;
    int64_t backward, transposed, f32, outer;
  } const expected[] = {
      {Formulation::kFused, 3, 0, 0, 0}, {Formulation::kMm, 0, 3, 0, 0}, {Formulation::kOutprod, 0, 0, 3, 3}};
  for (const auto& row : expected) {
    Network network(row.formulation, DType::kBF16, false);
    const std::string text = network.graph.print();
    EXPECT_EQ(occurrences(text, "frozen_linear{backward}("), row.backward) << text;
    EXPECT_EQ(occurrences(text, "= transposed_copy("), row.transposed) << text;
    EXPECT_EQ(occurrences(text, "= f32_copy("), row.f32) << text;
    EXPECT_EQ(occurrences(text, "= outer_product("), row.outer) << text;
    // Forward products, and those of mm.
    EXPECT_EQ(occurrences(text, "frozen_linear{forward}("), 3 + row.transposed) << text;
    for (const FormulationName& other : kFormulations)
      EXPECT_EQ(network.result.formulations[other.formulation], other.formulation == row.formulation ? 3 : 0);
    EXPECT_EQ(network.result.formulations.strided_gradients, 0);
    EXPECT_EQ(network.result.formulations.quantised_weights, 0);
    for (const Node& node : network.graph.nodes()) {  // adapter factors and activations never are
      if (node.op->name() != "transposed_copy") continue;
      EXPECT_EQ(network.graph.value(node.inputs[0]).kind, ValueKind::kFrozen);
    }
  }
  EXPECT_EQ(occurrences(Network(Formulation::kOutprod, DType::kF32).graph.print(), "f32_copy"), 0)
      << "an F32 weight is taken as it lies";
}

TEST(Formulations, MmGivesWayToOutprodWhereAGradientHasGaps) {
  Network mm(Formulation::kMm);
  const std::string text = mm.graph.print();
  EXPECT_EQ(mm.result.formulations[Formulation::kMm], 1);
  EXPECT_EQ(mm.result.formulations[Formulation::kOutprod], 2);
  EXPECT_EQ(mm.result.formulations[Formulation::kFused], 0);
  EXPECT_EQ(mm.result.formulations.strided_gradients, 2);
  EXPECT_EQ(mm.result.formulations.quantised_weights, 0);
  EXPECT_EQ(occurrences(text, "= transposed_copy("), 1) << text;
  EXPECT_EQ(occurrences(text, "= outer_product("), 2) << text;
  for (const Node& node : mm.graph.nodes()) {
    if (node.op->name() == "transposed_copy") {
      EXPECT_EQ(node.label, "last");
    }
    if (node.op->name() == "outer_product") {
      EXPECT_NE(node.label, "last");
    }
  }
  const std::vector<float> gradient = mm.run();
  EXPECT_GT(*std::max_element(gradient.begin(), gradient.end()), 1e-3f);
  EXPECT_EQ(gradient, Network(Formulation::kFused).run());
  EXPECT_EQ(gradient, Network(Formulation::kOutprod).run());
}

TEST(Formulations, MmGivesWayToOutprodWhereAWeightIsQuantised) {
  for (const bool sliced : {false, true}) {
    Network mm(Formulation::kMm, DType::kQ8_0, sliced), outprod(Formulation::kOutprod, DType::kQ8_0, sliced);
    EXPECT_EQ(mm.result.formulations[Formulation::kMm], 0);
    EXPECT_EQ(mm.result.formulations[Formulation::kOutprod], 3);
    EXPECT_EQ(mm.result.formulations.quantised_weights, 3);
    EXPECT_EQ(mm.result.formulations.strided_gradients, 0) << "one reason a node";
    EXPECT_EQ(mm.graph.print(), outprod.graph.print());
    EXPECT_EQ(outprod.result.formulations.quantised_weights, 0) << "nothing was given up";
    EXPECT_EQ(mm.run(), Network(Formulation::kFused, DType::kQ8_0, sliced).run());
  }
}

// The library reads no environment: a graph is the same whatever is set.
TEST(Formulations, TheEnvironmentChangesNoGraph) {
  const auto graphs = [] {
    std::vector<std::string> texts;
    for (const FormulationName& row : kFormulations) texts.push_back(Network(row.formulation).graph.print());
    return texts;
  };
  unsetenv("GGML_BACKWARD_MM");
  const std::vector<std::string> unset = graphs();
  for (const char* value : {"", "0", "1", "true"}) {
    setenv("GGML_BACKWARD_MM", value, 1);
    EXPECT_EQ(graphs(), unset) << value;
  }
  unsetenv("GGML_BACKWARD_MM");
  EXPECT_NE(unset[0], unset[1]);
}

}  // namespace
}  // namespace patina
