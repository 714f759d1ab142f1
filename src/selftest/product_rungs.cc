// Rungs on the frozen product, in every type and formulation.
#include <cmath>

#include "graph/reference_executor.h"
#include "measure/parity.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "selftest/guard_site.h"
#include "selftest/measures.h"
#include "selftest/synthetic_weight.h"
#include "selftest/tables.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;
using Direction = FrozenLinear::Direction;

constexpr int64_t kRows = 37, kOut = 131, kIn = 512;

// W [kOut, kIn] with a row map, and operands.
struct Operands {
  explicit Operands(RungContext& context)
      : stored(synthetic_weight(context.dtype, kOut, kIn, 1, context.pool)),
        x(as_floats(random_normals(kRows * kIn, 1))),
        dy(as_floats(random_normals(kRows * kOut, 2))) {
    for (int64_t row = 0; row < kOut; ++row) map.push_back(static_cast<int32_t>((row + 5) % kOut));
    weight = dense(stored.data(), context.dtype, {kOut, kIn});
    weight.row_map = map.data();
  }
  static std::vector<float> as_floats(const std::vector<double>& numbers) { return {numbers.begin(), numbers.end()}; }

  std::vector<std::byte> stored;
  std::vector<float> x, dy;
  std::vector<int32_t> map;
  Tensor weight;
};

// y [kRows, kOut] of x, or dx [kRows, kIn] of dy.
std::vector<double> run_product(RungContext& context, Operands& operands, Direction direction, Formulation formulation,
                                ThreadPool& pool) {
  const bool forward = direction == Direction::kForward;
  Graph graph;
  const ValueId in = graph.input("in", DType::kF32, {kRows, forward ? kIn : kOut}),
                w = graph.frozen("W", operands.weight);
  const ValueId out = forward ? frozen_linear(graph, in, w, kNoValue, "y")
                              : frozen_linear_gradient(graph, in, w, kNoValue, "dx", formulation);
  graph.mark_output(out);
  Executor executor(graph, *context.parts.backend, pool);
  executor.bind(in, forward ? operands.x.data() : operands.dy.data());
  executor.run({});
  return as_doubles({executor.tensor(out).f32(), static_cast<size_t>(kRows * (forward ? kOut : kIn))});
}
std::vector<double> run_product(RungContext& context, Operands& operands, Direction direction) {
  return run_product(context, operands, direction, context.formulation, context.pool);
}

// The error of a product over the one that F32 arithmetic explains.
Measured parity(RungContext& context, Direction direction) {
  Operands operands(context);
  const ExactProduct exact = exact_product(as_doubles(direction == Direction::kForward ? operands.x : operands.dy),
                                           operands.weight, direction, context.pool);
  return {relative_error(run_product(context, operands, direction), exact.values) / exact.bound};
}
Measured measure_forward(RungContext& context) { return parity(context, Direction::kForward); }
Measured measure_backward(RungContext& context) { return parity(context, Direction::kBackward); }

Measured measure_adjoint(RungContext& context) {
  Operands operands(context);
  const std::vector<double> y = run_product(context, operands, Direction::kForward),
                            dx = run_product(context, operands, Direction::kBackward);
  double left = 0, right = 0, y_squares = 0, dy_squares = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double dy = static_cast<double>(operands.dy[i]);
    left += y[i] * dy;
    y_squares += y[i] * y[i];
    dy_squares += dy * dy;
  }
  for (size_t i = 0; i < dx.size(); ++i) right += dx[i] * static_cast<double>(operands.x[i]);
  return {std::abs(left - right) / std::sqrt(y_squares * dy_squares)};
}

Measured measure_same_bits(RungContext& context) {
  Operands operands(context);
  ThreadPool one(1);
  return {differences(run_product(context, operands, Direction::kBackward),
                      run_product(context, operands, Direction::kBackward, Formulation::kFused, one))};
}

// Trained A before two frozen products, whose outputs stand side by side before a third: the gradients of the first two
// are slices of columns. loss = <c, y>.
class SlicedNetwork {
 public:
  explicit SlicedNetwork(RungContext& context) {
    const auto frozen = [&](int64_t rows, int64_t columns) {
      stored_.push_back(synthetic_weight(context.dtype, rows, columns, stored_.size(), context.pool));
      return graph_.frozen("W", dense(stored_.back().data(), context.dtype, {rows, columns}));
    };
    const ValueId a = graph_.trainable("A", {kWidth, kInput}, a_.data());
    const ValueId da = graph_.state("dA", DType::kF32, {kWidth, kInput}, da_.data());
    const ValueId x = graph_.frozen("x", dense(x_.data(), DType::kF32, {kTokens, kInput}));
    const ValueId h = matmul(graph_, x, a, kNoValue, 1, true, "h");
    const ValueId joined =
        side_by_side(graph_, frozen_linear(graph_, h, frozen(kLeft, kWidth), kNoValue, "left"),
                     frozen_linear(graph_, h, frozen(kWidth - kLeft, kWidth), kNoValue, "right"), "join");
    const ValueId y = frozen_linear(graph_, joined, frozen(kOutput, kWidth), kNoValue, "last");
    const ValueId c = graph_.frozen("c", dense(c_.data(), DType::kF32, {1, kTokens * kOutput}));
    const ValueId flat = reshape(graph_, y, {1, kTokens * kOutput}, "loss");
    const ValueId loss = reshape(graph_, matmul(graph_, flat, c, kNoValue, 1, true, "loss"), {1}, "loss");
    result_ = differentiate(graph_, loss, {{a, da}}, {}, context.formulation);
  }

  std::vector<double> run(RungContext& context) {
    Executor executor(graph_, *context.parts.backend, context.pool);
    executor.bind(result_.seed, &seed_);
    executor.run({});
    return as_doubles(da_);
  }
  std::vector<double> run_exactly() {
    ReferenceExecutor<double> reference(graph_);
    reference.bind(result_.seed, &seed_);
    reference.run({});
    const double* const numbers = reference.tensor(result_.gradient.begin()->second).data;
    return {numbers, numbers + da_.size()};
  }
  int64_t kept() const { return result_.formulations.strided_gradients; }

 private:
  static constexpr int64_t kTokens = 9, kInput = 8, kWidth = 256, kLeft = 96, kOutput = 40;
  static std::vector<float> normals(int64_t count, uint32_t stream) {
    return Operands::as_floats(random_normals(count, stream));
  }
  std::vector<float> a_ = normals(kWidth * kInput, 3), x_ = normals(kTokens * kInput, 4),
                     c_ = normals(kTokens * kOutput, 5), da_ = std::vector<float>(a_.size());
  std::vector<std::vector<std::byte>> stored_;
  Graph graph_;
  Differentiation result_;
  float seed_ = 1;
};

Measured measure_guard(RungContext& context) {
  SlicedNetwork network(context);
  const std::vector<double> exact = network.run_exactly();  // before a run, which adds to what the gradients are
  return {relative_error(network.run(context), exact), static_cast<double>(network.kept())};
}

}  // namespace

Rungs product_rungs() {
  static const std::vector<Rung> rungs = {
      {"P1",
       "y = x W^T of every stored type: error over what F32 arithmetic explains",
       Repeats::kByType,
       {at_most(1.0)},
       measure_forward},
      {"P2",
       "dx = dy W of every stored type: error over what F32 arithmetic explains",
       Repeats::kByFormulation,
       {at_most(1.0)},
       measure_backward},
      {"P3",
       "adjoint identity <dy, x W^T> = <dy W, x> on stored weights",
       Repeats::kByFormulation,
       {at_most(1e-6)},
       measure_adjoint},
      {"P4",
       "dx of every formulation = fused on one thread: numbers that differ",
       Repeats::kByFormulation,
       {exactly_zero()},
       measure_same_bits},
      {"P5",
       "gradient where dy has gaps and mm must give way, against double precision",
       Repeats::kByFormulation,
       {at_most(1e-5), {Bar::Side::kAtLeast, 1, "products kept from mm", true}},
       measure_guard},
  };
  return rungs;
}

}  // namespace patina
