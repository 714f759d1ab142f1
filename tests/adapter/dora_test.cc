#include <gtest/gtest.h>

#include <cmath>

#include "support/branch.h"

namespace patina::testing {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0};

AdapterOptions options(int64_t rank = 3) { return {.kind = AdapterKind::kDora, .rank = rank, .alpha = 5}; }

TEST(Dora, UntrainedIsTheFrozenProduct) {
  for (const DType dtype : kTypes) {
    const BranchCase subject(96, 64, dtype);
    Adapter adapter(subject.sites(), options());
    const std::vector<float> y = subject.run(adapter);
    expect_near(y, subject.run_frozen(), 1e-6, std::string(name(dtype)));
  }
}

// Magnitudes start as the norms of the rows, in Hugging Face order.
TEST(Dora, MagnitudesStartAsNorms) {
  for (const DType dtype : kTypes) {
    const BranchCase subject(96, 64, dtype);
    Adapter adapter(subject.sites(), options());
    const std::vector<AdaptedSite> sites = adapter.sites();
    const auto& lora = std::get<LoraFactors>(sites[0].factors);
    const std::vector<double> weight = subject.weight();
    for (size_t row = 0; row < 96; ++row) {
      double squares = 0;
      for (size_t i = 0; i < 64; ++i) squares += weight[row * 64 + i] * weight[row * 64 + i];
      ASSERT_TRUE(std::abs(static_cast<double>(lora.magnitude[row]) - std::sqrt(squares)) <= 1e-6 * std::sqrt(squares));
    }
  }
}

// Against the definition: V = W + s B A built whole, its rows brought to their magnitudes.
TEST(Dora, IsTheAdaptedWeightWithRowsOfItsMagnitudes) {
  for (const DType dtype : kTypes)
    for (const int64_t rank : {1, 3, 16}) {
      const BranchCase subject(96, 64, dtype);
      Adapter adapter(subject.sites(), options(rank));
      disturb(adapter);
      const auto lora = std::get<LoraFactors>(adapter.sites().at(0).factors);
      std::vector<double> v = subject.weight();
      for (size_t o = 0; o < 96; ++o) {
        double squares = 0;
        for (size_t i = 0; i < 64; ++i) {
          double change = 0;
          for (size_t r = 0; r < static_cast<size_t>(rank); ++r)
            change += static_cast<double>(lora.b[o * static_cast<size_t>(rank) + r]) *
                      static_cast<double>(lora.a[r * 64 + i]);
          v[o * 64 + i] += static_cast<double>(lora.scale()) * change;
          squares += v[o * 64 + i] * v[o * 64 + i];
        }
        for (size_t i = 0; i < 64; ++i) v[o * 64 + i] *= static_cast<double>(lora.magnitude[o]) / std::sqrt(squares);
      }
      expect_near(subject.run(adapter), subject.product(v), 1e-5, fmt::format("{} rank {}", name(dtype), rank));
    }
}

TEST(Dora, GradientsWithTheNormHeld) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const BranchCase subject(12, 10, dtype);
    Adapter adapter(subject.sites(), options());
    disturb(adapter);
    expect_exact_gradients(subject, adapter);
  }
}

TEST(Dora, FromFactorsAndBack) {
  const BranchCase subject(96, 64, DType::kQ8_0);
  Adapter adapter(subject.sites(), options());
  disturb(adapter);
  Adapter again(subject.sites(), adapter.sites(), "x");
  EXPECT_TRUE(std::ranges::equal(again.parameters().values(), adapter.parameters().values()));
  EXPECT_EQ(subject.run(again), subject.run(adapter));
}

// A row of zeros has no direction: it stays one, and nothing is divided by zero.
TEST(Dora, ARowOfZeros) {
  std::vector<float> w(4 * 6, 0.0f);
  const std::vector<Site> sites = {{0, "q", 6, 4, dense(w.data(), DType::kF32, {4, 6})}};
  Adapter adapter(sites, options());
  ThreadPool pool(1);
  Prelude(&adapter, cpu_backend(), pool).run();
  Graph graph;
  std::vector<float> x(6, 1.0f);
  const ValueId input = graph.input("x", DType::kF32, {1, 6});
  const ValueId y = adapter.linear(graph, input, graph.frozen("w", sites[0].weight), kNoValue, 0, "q", {});
  graph.mark_output(y);
  Executor executor(graph, cpu_backend(), pool);
  executor.bind(input, x.data());
  executor.run({});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(executor.tensor(y).f32()[i], 0.0f);
}

}  // namespace
}  // namespace patina::testing
