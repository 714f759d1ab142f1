// The three formulations of a frozen product's gradient: one shape, one set of refusals, the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/reference_backend.h"
#include "ops/frozen_linear.h"
#include "ops/view.h"
#include "support/cases.h"

namespace patina {
namespace {

struct Gradients {
  Gradients(int64_t t, int64_t n, int64_t k, DType dtype, bool acc) {
    const Extent rows = builder.rows(t);
    const ValueId dy = builder.values({rows, n}), w = builder.frozen(dtype, n, k, true);
    const ValueId sum = acc ? builder.values({rows, k}) : kNoValue;
    for (const FormulationName& row : kFormulations) {
      if (row.formulation == Formulation::kMm && info(dtype).block_values > 1) continue;
      outputs.push_back(frozen_linear_gradient(builder.graph, dy, w, sum, "dx", row.formulation));
      builder.graph.mark_output(outputs.back());
    }
  }

  std::vector<std::vector<float>> run(const Backend& backend, int threads) {
    ThreadPool pool(threads);
    Executor executor(builder.graph, backend, pool);
    builder.bind(executor);
    executor.run(builder.sizes());
    std::vector<std::vector<float>> results;
    for (const ValueId output : outputs) {
      const Tensor tensor = executor.tensor(output);
      results.emplace_back(tensor.f32(), tensor.f32() + tensor.shape.elements());
    }
    return results;
  }

  CaseBuilder builder{true};
  std::vector<ValueId> outputs;
};

void expect_same_bits(const std::vector<std::vector<float>>& results, const std::string& where) {
  for (const std::vector<float>& other : results) {
    ASSERT_EQ(other.size(), results[0].size()) << where;
    EXPECT_EQ(std::memcmp(other.data(), results[0].data(), other.size() * sizeof(float)), 0) << where;
  }
}

TEST(Formulations, OneShapeAndTheSameBits) {
  const int64_t sizes[] = {1, 2, 7, 33, 130};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int64_t t : sizes)
      for (const int64_t n : sizes)
        for (const int64_t k : sizes)
          for (const bool acc : {false, true}) {
            Gradients gradients(t, n, k, dtype, acc);
            ASSERT_EQ(gradients.outputs.size(), 3u);
            const Extents extents = gradients.builder.graph.value(gradients.outputs[0]).extents;
            EXPECT_EQ(extents, (Extents{gradients.builder.rows(t), k}));
            for (const ValueId output : gradients.outputs)
              EXPECT_EQ(gradients.builder.graph.value(output).extents, extents);
            expect_same_bits(gradients.run(cpu_backend(), 2),
                             fmt::format("{} T={} N={} K={} acc={}", name(dtype), t, n, k, acc));
          }
}

TEST(Formulations, TheSameBitsOnEveryInstructionSet) {
  for (const std::string& isa : cpu_isas()) {
    use_isa(isa);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K})
      for (const int threads : {1, 3})
        expect_same_bits(Gradients(37, 701, 768, dtype, true).run(cpu_backend(), threads),
                         fmt::format("{} {} {} threads", isa, name(dtype), threads));
  }
  use_isa("");
}

TEST(Formulations, OnTheReferenceBackend) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0})
    expect_same_bits(Gradients(5, 7, 32, dtype, true).run(reference_backend(), 1), std::string(name(dtype)));
}

TEST(Formulations, RefuseAlike) {
  std::vector<float> numbers(64);
  Graph graph;
  const ValueId w = graph.frozen("w", dense(numbers.data(), DType::kF32, {3, 5}));
  const ValueId narrow = graph.input("dy", DType::kF32, {2, 5}), vector = graph.input("dy", DType::kF32, {3});
  const ValueId flat = graph.frozen("w", dense(numbers.data(), DType::kF32, {3}));
  const ValueId dy = graph.input("dy", DType::kF32, {2, 3});
  for (const FormulationName& row : kFormulations) {
    const auto gradient = [&](ValueId from, ValueId weight) {
      return frozen_linear_gradient(graph, from, weight, kNoValue, "dx", row.formulation);
    };
    EXPECT_NO_THROW(gradient(dy, w)) << row.name;
    EXPECT_THROW(gradient(narrow, w), InternalError) << row.name;
    EXPECT_THROW(gradient(vector, w), InternalError) << row.name;
    EXPECT_THROW(gradient(dy, flat), InternalError) << row.name;
  }
  // What only mm cannot do: differentiation never asks it to.
  const ValueId turned = transpose(graph, graph.input("dy", DType::kF32, {3, 2}), "dy");
  EXPECT_THROW(frozen_linear_gradient(graph, turned, w, kNoValue, "dx", Formulation::kMm), InternalError);
  EXPECT_NO_THROW(frozen_linear_gradient(graph, turned, w, kNoValue, "dx", Formulation::kOutprod));
  EXPECT_NO_THROW(frozen_linear_gradient(graph, turned, w, kNoValue, "dx", Formulation::kFused));
}

}  // namespace
}  // namespace patina
