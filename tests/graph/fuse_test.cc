#include "graph/fuse.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference_backend.h"
#include "graph/differentiate.h"
#include "graph/executor.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "support/normals.h"

namespace patina {
namespace {

// h = h + (h W^T + 0.5 (h A^T) B^T), twice, and a loss.
struct Network {
  static constexpr int64_t kWidth = 40, kRank = 3, kTokens = 19;

  Network() {
    const Extent tokens = graph.symbol("T", kTokens);
    const ValueId w = graph.frozen("w", dense(w_data.data(), DType::kF32, {kWidth, kWidth}));
    const ValueId labels = graph.input("labels", DType::kI32, {tokens});
    ValueId h = graph.input("x", DType::kF32, {tokens, kWidth});
    inputs = {h, labels};
    std::map<ValueId, ValueId> gradients;
    for (int i = 0; i < 2; ++i) {
      const size_t at = static_cast<size_t>(2 * i);
      const ValueId a = graph.trainable("A", {kRank, kWidth}, factors[at].data());
      const ValueId b = graph.trainable("B", {kWidth, kRank}, factors[at + 1].data());
      gradients[a] = graph.state("dA", DType::kF32, {kRank, kWidth}, sums[at].data());
      gradients[b] = graph.state("dB", DType::kF32, {kWidth, kRank}, sums[at + 1].data());
      const ValueId frozen = frozen_linear(graph, h, w, i == 0 ? h : kNoValue, "site");
      const ValueId u = matmul(graph, h, a, kNoValue, 1.0f, true, "lora_a");
      h = matmul(graph, u, b, frozen, 0.5f, true, "lora_b");
    }
    loss = head_loss(graph, h, w, labels, true, "head");
    graph.mark_output(loss);
    differentiation = differentiate(graph, loss, gradients, {inputs[0]});
  }

  // Loss and all gradients.
  std::vector<float> run(const Backend& backend) {
    for (std::vector<float>& sum : sums) std::fill(sum.begin(), sum.end(), 0.0f);
    ThreadPool pool(2);
    Executor executor(graph, backend, pool);
    float seed = 0.5f;
    executor.bind(inputs[0], x_data.data());
    executor.bind(inputs[1], label_data.data());
    executor.bind(differentiation.seed, &seed);
    executor.run(std::vector<int64_t>{kTokens});
    std::vector<float> all = {executor.tensor(loss).f32()[0]};
    for (const std::vector<float>& sum : sums) all.insert(all.end(), sum.begin(), sum.end());
    const float* const dx = executor.tensor(differentiation.gradient.at(inputs[0])).f32();
    all.insert(all.end(), dx, dx + kTokens * kWidth);
    return all;
  }

  Graph graph;
  std::vector<float> w_data = normals(kWidth * kWidth, 1, 0.3), x_data = normals(kTokens * kWidth, 2, 0.3);
  std::vector<int32_t> label_data = std::vector<int32_t>(kTokens, 7);
  std::array<std::vector<float>, 4> factors = {normals(kRank * kWidth, 3, 0.3), normals(kRank* kWidth, 4, 0.3),
                                               normals(kRank* kWidth, 5, 0.3), normals(kRank* kWidth, 6, 0.3)};
  std::array<std::vector<float>, 4> sums = factors;
  std::vector<ValueId> inputs;
  ValueId loss = kNoValue;
  Differentiation differentiation;
};

TEST(Fuse, BranchesJoinTheirProductAndNoBitChanges) {
  for (const Backend* backend : {&cpu_backend(), &reference_backend()}) {
    Network plain, fused;
    const size_t before = fused.graph.nodes().size();
    EXPECT_EQ(fuse_branches(fused.graph), 3) << "two forward; one backward: in the other the residual comes between";
    EXPECT_EQ(fused.graph.nodes().size(), before - 3);
    const std::string text = fused.graph.print();
    EXPECT_NE(text.find("frozen_linear{forward,branch=0.5,transposed}"), std::string::npos) << text;
    EXPECT_NE(text.find("frozen_linear{backward,branch=1,first}"), std::string::npos) << text;
    EXPECT_EQ(plain.run(*backend), fused.run(*backend)) << backend->name();
    EXPECT_EQ(fuse_branches(fused.graph), 0) << "a product has one branch";
  }
}

// What is read elsewhere must exist by itself.
TEST(Fuse, LeavesWhatOthersRead) {
  std::vector<float> numbers(64, 0.5f);
  for (const bool output : {false, true}) {
    Graph graph;
    const Extent tokens = graph.symbol("T", 4);
    const ValueId x = graph.input("x", DType::kF32, {tokens, 8}), u = graph.input("u", DType::kF32, {tokens, 2});
    const ValueId w = graph.frozen("w", dense(numbers.data(), DType::kF32, {8, 8}));
    const ValueId b = graph.trainable("b", {8, 2}, numbers.data());
    const ValueId frozen = frozen_linear(graph, x, w, kNoValue, "site");
    const ValueId y = matmul(graph, u, b, frozen, 1.0f, true, "lora_b");
    graph.mark_output(output ? frozen : add(graph, frozen, y, "sum"));
    graph.mark_output(y);
    EXPECT_EQ(fuse_branches(graph), 0);
  }
}

}  // namespace
}  // namespace patina
