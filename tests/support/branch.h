// One adapted layer by itself: what it computes, and its gradients against derivatives.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include "adapter/prelude.h"
#include "backend/cpu/cpu_backend.h"
#include "graph/differentiate.h"
#include "graph/reference_executor.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "support/normals.h"
#include "support/random_weight.h"

namespace patina::testing {

// Parameters as in the middle of a training: each changed by some tenths, none zero.
inline void disturb(Adapter& adapter) {
  ParameterStore& store = adapter.parameters();
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const std::vector<float> change = normals(store.slices()[i].shape.elements(), static_cast<uint32_t>(100 + i), 0.2);
    for (size_t j = 0; j < change.size(); ++j) store.value(i)[j] += change[j];
  }
}

// y [T,out] = acc + adapted(W) x on random numbers, W with a row map.
class BranchCase {
 public:
  static constexpr int64_t kRows = 5;

  BranchCase(int64_t out, int64_t in, DType dtype)
      : out_(out),
        in_(in),
        stored_(random_weight(dtype, out, in, 1)),
        x_(normals(kRows * in, 1, 1)),
        acc_(normals(kRows * out, 2, 1)),
        c_(normals(kRows * out, 3, 1)) {
    for (int64_t row = 0; row < out; ++row) map_.push_back(static_cast<int32_t>(out - 1 - row));
    weight_ = dense(stored_.data(), dtype, {out, in});
    weight_.row_map = map_.data();
  }

  std::vector<Site> sites() const { return {{0, "q", in_, out_, weight_}}; }
  const Tensor& stored() const { return weight_; }
  // W in Hugging Face order.
  std::vector<double> weight() const {
    std::vector<float> row(static_cast<size_t>(in_));
    std::vector<double> all;
    for (int64_t r = 0; r < out_; ++r) {
      decode_row(weight_.dtype)(weight_.row(r), 0, in_, row.data());
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  // acc + V x for a whole V [out,in].
  std::vector<float> product(const std::vector<double>& v) const {
    std::vector<float> y;
    for (int64_t t = 0; t < kRows; ++t)
      for (int64_t o = 0; o < out_; ++o) {
        double sum = static_cast<double>(acc_[static_cast<size_t>(t * out_ + o)]);
        for (int64_t i = 0; i < in_; ++i)
          sum += v[static_cast<size_t>(o * in_ + i)] * static_cast<double>(x_[static_cast<size_t>(t * in_ + i)]);
        y.push_back(static_cast<float>(sum));
      }
    return y;
  }

  std::vector<float> run(Adapter& adapter) const { return run_with(&adapter); }
  std::vector<float> run_frozen() const { return run_with(nullptr); }

  struct Built {
    Graph graph;
    ValueId x, acc, c, loss;
  };
  // loss = <c, y>.
  void build(Built& built, Adapter& adapter) const {
    Graph& graph = built.graph;
    built.x = graph.input("x", DType::kF32, {kRows, in_});
    built.acc = graph.input("acc", DType::kF32, {kRows, out_});
    built.c = graph.input("c", DType::kF32, {1, kRows * out_});
    const ValueId y = adapter.linear(graph, built.x, graph.frozen("w", weight_), built.acc, 0, "q", {});
    const ValueId flat = reshape(graph, y, {1, kRows * out_}, "L");
    built.loss = reshape(graph, matmul(graph, flat, built.c, kNoValue, 1, true, "L"), {1}, "L");
  }
  template <typename AnyExecutor>
  void bind(AnyExecutor& executor, const Built& built) const {
    executor.bind(built.x, const_cast<float*>(x_.data()));
    executor.bind(built.acc, const_cast<float*>(acc_.data()));
    executor.bind(built.c, const_cast<float*>(c_.data()));
  }

 private:
  std::vector<float> run_with(Adapter* adapter) const {
    ThreadPool pool(2);
    Prelude(adapter, cpu_backend(), pool).run();
    Graph graph;
    const ValueId x = graph.input("x", DType::kF32, {kRows, in_}), acc = graph.input("acc", DType::kF32, {kRows, out_});
    const ValueId y = linear(graph, adapter, x, graph.frozen("w", weight_), acc, 0, "q", {});
    graph.mark_output(y);
    Executor executor(graph, cpu_backend(), pool);
    executor.bind(x, const_cast<float*>(x_.data()));
    executor.bind(acc, const_cast<float*>(acc_.data()));
    executor.run({});
    const float* const data = executor.tensor(y).f32();
    return {data, data + kRows * out_};
  }

  const int64_t out_, in_;
  std::vector<std::byte> stored_;
  std::vector<int32_t> map_;
  Tensor weight_;
  const std::vector<float> x_, acc_, c_;
};

inline void expect_near(const std::vector<float>& got, const std::vector<float>& expected, double tolerance,
                        const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) <= tolerance * largest)
        << where << ": " << got[i] << " for " << expected[i] << " at " << i;
}

// The gradient nodes in double precision against a complex step of every parameter (what a prelude computes is held).
inline void expect_exact_gradients(const BranchCase& subject, Adapter& adapter) {
  ThreadPool pool(2);
  Prelude(&adapter, cpu_backend(), pool).run();
  BranchCase::Built built;
  subject.build(built, adapter);
  const int forward_nodes = static_cast<int>(built.graph.nodes().size());
  const Differentiation result = differentiate(built.graph, built.loss, adapter.gradients(built.graph));
  const float one = 1;
  ReferenceExecutor<double> reference(built.graph);
  subject.bind(reference, built);
  reference.bind(result.seed, &one);
  reference.run({});
  constexpr double kStep = 1e-30;
  ReferenceExecutor<std::complex<double>> stepped(built.graph);
  subject.bind(stepped, built);
  ASSERT_EQ(result.gradient.size(), adapter.parameters().slices().size());
  for (const auto& [trainable, gradient] : result.gradient) {
    const std::string name = built.graph.value(trainable).name;
    const RefTensor<double> got = reference.tensor(gradient);
    const float* const numbers = static_cast<const float*>(built.graph.value(trainable).data);
    std::vector<double> expected;
    double largest = 0;
    for (int64_t i = 0; i < got.shape.elements(); ++i) {
      stepped.clear_pokes();
      stepped.poke(trainable, i, {static_cast<double>(numbers[i]), kStep});
      stepped.run({}, forward_nodes);
      expected.push_back(stepped.tensor(built.loss).at(0).imag() / kStep);
      largest = std::max(largest, std::abs(expected.back()));
    }
    EXPECT_GT(largest, 1e-3) << name;
    for (int64_t i = 0; i < got.shape.elements(); ++i)
      ASSERT_TRUE(std::abs(got.data[i] - expected[static_cast<size_t>(i)]) <= 1e-10 * largest) << name << " " << i;
  }
}

}  // namespace patina::testing
