#include "graph/differentiate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference_backend.h"
#include "graph/executor.h"
#include "graph/reference_executor.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/view.h"
#include "support/compare.h"
#include "support/normals.h"

namespace patina {
namespace {

// A block of a transformer without its attention, with a low-rank branch whose matrices are used twice, a value used
// three times, column views, and a residual whose gradient is both acc and dy of a square product.
struct Network {
  static constexpr int64_t kRank = 3, kWidth = 8, kVocabulary = 11, kMaximumTokens = 9;

  explicit Network(Formulation formulation = Formulation::kFused) {
    const Extent tokens = graph.symbol("T", kMaximumTokens), supervised = graph.symbol("M", kMaximumTokens);
    const ValueId x = graph.input("x", DType::kF32, {tokens, kWidth});
    const ValueId a = graph.trainable("A", {kRank, kWidth}, a_data.data());
    const ValueId b = graph.trainable("B", {2 * kWidth, kRank}, b_data.data());
    const ValueId da = graph.state("dA", DType::kF32, {kRank, kWidth}, da_data.data());
    const ValueId db = graph.state("dB", DType::kF32, {2 * kWidth, kRank}, db_data.data());
    const ValueId wide = graph.frozen("wide", dense(wide_data.data(), DType::kF32, {2 * kWidth, kWidth}));
    const ValueId square = graph.frozen("square", dense(square_data.data(), DType::kF32, {kWidth, kWidth}));
    const ValueId head = graph.frozen("head", dense(head_data.data(), DType::kF32, {kVocabulary, kWidth}));
    const ValueId norm = graph.frozen("norm", dense(norm_data.data(), DType::kF32, {kWidth}));
    const ValueId rows = graph.input("rows", DType::kI32, {supervised}),
                  labels = graph.input("labels", DType::kI32, {supervised});
    ValueId h = x;
    for (const std::string layer : {"first", "second"}) {
      const ValueId n = rms_norm(graph, h, norm, 1e-5f, layer);
      const ValueId down = matmul(graph, n, a, kNoValue, 1, true, layer);
      const ValueId y = matmul(graph, down, b, frozen_linear(graph, n, wide, kNoValue, layer), 0.5f, true, layer);
      const ValueId gate = columns(graph, y, 0, kWidth, layer), up = columns(graph, y, kWidth, kWidth, layer);
      h = add(graph, h, swiglu(graph, gate, up, layer), layer);
      h = add(graph, h, n, layer);
      h = add(graph, h, frozen_linear(graph, h, square, kNoValue, layer), layer);
    }
    loss = head_loss(graph, gather_rows(graph, h, rows, "head"), head, labels, true, "head");
    graph.mark_output(loss);
    forward_nodes = static_cast<int>(graph.nodes().size());
    differentiation = differentiate(graph, loss, {{a, da}, {b, db}}, {x}, formulation);
    ids = {x, a, b, rows, labels};
    states = {da, db};
  }

  template <typename AnyExecutor>
  void bind(AnyExecutor& executor) {
    executor.bind(ids[0], x_data.data());
    executor.bind(ids[3], row_data.data());
    executor.bind(ids[4], label_data.data());
    executor.bind(differentiation.seed, &seed);
  }

  std::vector<float> x_data = normals(kMaximumTokens * kWidth, 1, 0.5), a_data = normals(kRank * kWidth, 2, 0.5),
                     b_data = normals(2 * kWidth * kRank, 3, 0.5), wide_data = normals(2 * kWidth * kWidth, 4, 0.5),
                     square_data = normals(kWidth * kWidth, 5, 0.5), head_data = normals(kVocabulary * kWidth, 6, 0.5),
                     norm_data = normals(kWidth, 7, 0.5), da_data = std::vector<float>(kRank * kWidth),
                     db_data = std::vector<float>(2 * kWidth * kRank);
  std::vector<int32_t> row_data{4, 0, 2, 3, 1, 5, 6, 7, 8}, label_data{3, 10, 0, 0, 7, 1, 2, 4, 5};
  float seed = 0.25f;
  Graph graph;
  ValueId loss;
  int forward_nodes;
  Differentiation differentiation;
  std::vector<ValueId> ids, states;
};

std::vector<double> doubles(const RefTensor<double>& tensor) {
  return {tensor.data, tensor.data + tensor.shape.elements()};
}
std::vector<double> doubles(const Tensor& tensor) { return {tensor.f32(), tensor.f32() + tensor.shape.elements()}; }

class EveryFormulation : public testing::TestWithParam<FormulationName> {};
INSTANTIATE_TEST_SUITE_P(Differentiate, EveryFormulation, testing::ValuesIn(kFormulations),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(EveryFormulation, WholeGraphMeetsComplexSteps) {
  Network network(GetParam().formulation);
  const std::vector<int64_t> sizes{6, 4};
  ReferenceExecutor<double> reference(network.graph);
  network.bind(reference);
  reference.run(sizes);
  for (const ValueId id : {network.ids[0], network.ids[1], network.ids[2]}) {
    const std::vector<double> gradient = doubles(reference.tensor(network.differentiation.gradient.at(id)));
    ReferenceExecutor<std::complex<double>> stepped(network.graph);
    network.bind(stepped);
    const float* numbers =
        id == network.ids[0] ? network.x_data.data() : static_cast<float*>(network.graph.value(id).data);
    std::vector<double> expected;
    for (size_t i = 0; i < gradient.size(); ++i) {
      stepped.clear_pokes();
      stepped.poke(id, static_cast<int64_t>(i), {static_cast<double>(numbers[i]), 1e-30});
      stepped.run(sizes, network.forward_nodes);
      expected.push_back(0.25 * stepped.tensor(network.loss).at(0).imag() / 1e-30);
    }
    const Comparison result = compare(gradient, expected, {kExactGradient, kExactGradient});
    EXPECT_TRUE(result.ok()) << network.graph.value(id).name << ": " << result.str();
    EXPECT_GT(result.max_expected, 1e-3);
  }
}

// In one arena, with storage taken over, on both backends, at several sizes in turn: the numbers of the oracle, where
// every value has memory of its own. Gradients add up over runs.
TEST_P(EveryFormulation, PlannedRunsMeetTheOracle) {
  for (const Backend* backend : {&cpu_backend(), &reference_backend()})
    for (const int threads : {1, 3}) {
      Network network(GetParam().formulation);
      ThreadPool pool(threads);
      Executor executor(network.graph, *backend, pool);
      EXPECT_GT(executor.plan().in_place_nodes, 8);
      network.bind(executor);
      std::vector<double> sum_a(network.da_data.size()), sum_b(network.db_data.size());
      for (const auto& sizes : {std::vector<int64_t>{9, 9}, {1, 1}, {6, 4}, {5, 0}, {9, 2}}) {
        network.row_data = sizes[0] == 1 ? std::vector<int32_t>{0} : std::vector<int32_t>{4, 0, 2, 3, 1, 5, 6, 7, 8};
        network.bind(executor);
        executor.run(sizes);
        // The oracle starts from what the gradients are now, so it gets the zeros they began with.
        ReferenceExecutor<double> reference(network.graph);
        network.bind(reference);
        const std::vector<float> zeros(1000);
        for (const ValueId state : network.states) reference.bind(state, zeros.data());
        reference.run(sizes);
        const auto expect = [&](const std::vector<double>& got, const std::vector<double>& expected, const char* what) {
          const Comparison result = compare(got, expected, {1e-5, 1e-5});
          EXPECT_TRUE(result.ok()) << backend->name() << " " << what << " T=" << sizes[0] << ": " << result.str();
        };
        expect(doubles(executor.tensor(network.loss)), doubles(reference.tensor(network.loss)), "loss");
        const ValueId dx = network.differentiation.gradient.at(network.ids[0]);
        expect(doubles(executor.tensor(dx)), doubles(reference.tensor(dx)), "dx");
        const auto accumulate = [&](std::vector<double>& sum, ValueId trainable) {
          const std::vector<double> part = doubles(reference.tensor(network.differentiation.gradient.at(trainable)));
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
        };
        accumulate(sum_a, network.ids[1]);
        accumulate(sum_b, network.ids[2]);
        expect({network.da_data.begin(), network.da_data.end()}, sum_a, "dA");
        expect({network.db_data.begin(), network.db_data.end()}, sum_b, "dB");
      }
    }
}

TEST(Differentiate, ThreadsInstructionSetsAndFormulationsGiveTheSameBits) {
  std::vector<float> first;
  for (const std::string& isa : cpu_isas()) {
    if (isa == "portable") continue;
    use_isa(isa);
    for (const FormulationName& row : kFormulations)
      for (const int threads : {1, 2, 3, 5}) {
        Network network(row.formulation);
        ThreadPool pool(threads);
        Executor executor(network.graph, cpu_backend(), pool);
        network.bind(executor);
        executor.run(std::vector<int64_t>{9, 7});
        std::vector<float> all = network.da_data;
        all.insert(all.end(), network.db_data.begin(), network.db_data.end());
        if (first.empty()) first = all;
        EXPECT_EQ(first, all) << isa << ", " << row.name << ", " << threads << " threads";
      }
  }
  use_isa("");
}

TEST(Differentiate, TheSameBuildPrintsTheSameGraph) {
  const std::string text = Network().graph.print();
  EXPECT_EQ(text, Network().graph.print());
  EXPECT_NE(text.find("rms_norm_grad"), std::string::npos);
  EXPECT_NE(text.find("[T,8]"), std::string::npos);
}

// A value is read as it is, and in two other shapes before and after that: all of it is one gradient.
TEST(Differentiate, ReadersOfAValueAndOfItsShapesAddUp) {
  const std::vector<float> x = normals(24, 1, 1), w = normals(4, 2, 1), v = normals(9, 3, 1), c = normals(24, 4, 1);
  Graph graph;
  const ValueId input = graph.input("x", DType::kF32, {6, 4}), weights = graph.input("c", DType::kF32, {1, 24});
  const ValueId zero = graph.input("zero", DType::kF32, {6, 4});
  const ValueId two = graph.input("w", DType::kF32, {2, 2}), three = graph.input("v", DType::kF32, {3, 3});
  const ValueId h = add(graph, input, zero, "h");
  const ValueId pairs = reshape(graph, h, {12, 2}, "pairs");
  const ValueId first = reshape(graph, matmul(graph, pairs, two, kNoValue, 1, true, "first"), {6, 4}, "first");
  const ValueId triples = reshape(graph, pairs, {8, 3}, "triples");
  const ValueId second = matmul(graph, triples, three, kNoValue, 1, false, "second");
  const ValueId sum = add(graph, add(graph, first, h, "sum"), reshape(graph, second, {6, 4}, "second"), "sum");
  const ValueId flat = reshape(graph, add(graph, sum, h, "sum"), {1, 24}, "L");
  const ValueId loss = reshape(graph, matmul(graph, flat, weights, kNoValue, 1, true, "L"), {1}, "L");
  const int forward_nodes = static_cast<int>(graph.nodes().size());
  const Differentiation result = differentiate(graph, loss, {}, {input});

  const std::vector<float> zeros(24, 0.0f);
  const float one = 1;
  const auto bind = [&](auto& executor) {
    executor.bind(input, const_cast<float*>(x.data()));
    executor.bind(zero, const_cast<float*>(zeros.data()));
    executor.bind(two, const_cast<float*>(w.data()));
    executor.bind(three, const_cast<float*>(v.data()));
    executor.bind(weights, const_cast<float*>(c.data()));
  };
  ThreadPool pool(2);
  Executor executor(graph, cpu_backend(), pool);
  bind(executor);
  executor.bind(result.seed, const_cast<float*>(&one));
  executor.run({});
  ReferenceExecutor<std::complex<double>> stepped(graph);
  bind(stepped);
  for (int64_t i = 0; i < 24; ++i) {
    stepped.clear_pokes();
    stepped.poke(input, i, {static_cast<double>(x[static_cast<size_t>(i)]), 1e-30});
    stepped.run({}, forward_nodes);
    const double expected = stepped.tensor(loss).at(0).imag() / 1e-30;
    const double got = static_cast<double>(executor.tensor(result.gradient.at(input)).f32()[i]);
    EXPECT_TRUE(std::abs(got - expected) <= 1e-5) << i << ": " << got << " " << expected;
  }
}

TEST(Differentiate, WhatDependsOnNothingTrainedIsAnError) {
  Graph graph;
  std::vector<float> data(4);
  const ValueId w = graph.frozen("w", dense(data.data(), DType::kF32, {2, 2}));
  const ValueId x = graph.input("x", DType::kF32, {1, 2});
  const ValueId y = frozen_linear(graph, x, w, kNoValue, "y");
  const ValueId loss = reshape(graph, matmul(graph, x, y, kNoValue, 1, true, "y"), {1}, "y");
  EXPECT_THROW(differentiate(graph, loss, {}), InternalError);
}

}  // namespace
}  // namespace patina
