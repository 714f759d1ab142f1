#include "support/op_case.h"

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "graph/differentiate.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "support/compare.h"
#include "support/random_weight.h"
#include "support/wrapped_backend.h"

namespace patina {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

Extent CaseBuilder::rows(int64_t n, const std::string& tag) {
  if (!symbolic_) return n;
  const auto found = extents_.find(tag);
  if (found != extents_.end()) return found->second;
  const Extent extent = graph.symbol(tag, n + 3);
  sizes_.push_back(n);
  return extents_.emplace(tag, extent).first->second;
}

int64_t CaseBuilder::actual_elements(ValueId id) const {
  int64_t elements = 1;
  for (const Extent& extent : graph.value(id).extents)
    elements *= extent.symbol < 0 ? extent.size : sizes_[static_cast<size_t>(extent.symbol)];
  return elements;
}

void CaseBuilder::add_external(ValueId id, const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  std::vector<std::byte> copy(first, first + bytes);
  copy.reserve(bytes + 1);  // an address even where there are no rows
  externals_.push_back({id, copy, {}});
  externals_.back().bytes.reserve(bytes + 1);
  externals_.back().first.reserve(bytes + 1);
}

ValueId CaseBuilder::floats(ValueId id, const std::function<double(int64_t)>& fill) {
  std::vector<float> numbers(static_cast<size_t>(actual_elements(id)));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(fill(static_cast<int64_t>(i)));
  add_external(id, numbers.data(), numbers.size() * sizeof(float));
  return id;
}

ValueId CaseBuilder::values(Extents extents, double scale) {
  const ValueId id = graph.input("x", DType::kF32, std::move(extents));
  differentiable_.push_back(id);
  return floats(id, [&](int64_t) { return scale * normal(); });
}

ValueId CaseBuilder::constant(Extents extents, const std::function<double(int64_t)>& fill) {
  return floats(graph.input("c", DType::kF32, std::move(extents)), fill);
}

ValueId CaseBuilder::ints(Extents extents, std::vector<int32_t> numbers) {
  const ValueId id = graph.input("i", DType::kI32, std::move(extents));
  PATINA_CHECK(static_cast<int64_t>(numbers.size()) == actual_elements(id), "{} numbers", numbers.size());
  add_external(id, numbers.data(), numbers.size() * sizeof(int32_t));
  return id;
}

ValueId CaseBuilder::frozen(DType dtype, int64_t rows, int64_t columns, bool row_map) {
  weights_.push_back(std::make_unique<std::vector<std::byte>>(random_weight(dtype, rows, columns, next_++)));
  Tensor weight = dense(weights_.back()->data(), dtype, {rows, columns});
  if (row_map) {
    std::vector<int32_t> map(static_cast<size_t>(rows));
    for (size_t r = 0; r < map.size(); ++r) {
      map[r] = static_cast<int32_t>(r);
      std::swap(map[r], map[below(r + 1)]);
    }
    row_maps_.push_back(std::make_unique<std::vector<int32_t>>(std::move(map)));
    weight.row_map = row_maps_.back()->data();
  }
  return graph.frozen("w", weight);
}

ValueId CaseBuilder::frozen_vector(int64_t columns) {
  weights_.push_back(std::make_unique<std::vector<std::byte>>(random_weight(DType::kF32, 1, columns, next_++)));
  return graph.frozen("w", dense(weights_.back()->data(), DType::kF32, {columns}));
}

ValueId CaseBuilder::state(Extents extents) {
  return floats(graph.state("s", DType::kF32, std::move(extents), nullptr), [&](int64_t) { return normal(); });
}

void CaseBuilder::bind(Executor& executor) {
  for (External& external : externals_) {
    external.bytes = external.first;
    external.bytes.reserve(external.first.size() + 1);
    executor.bind(external.id, external.bytes.data());
  }
}

std::span<const float> CaseBuilder::numbers(ValueId input) const {
  for (const External& external : externals_)
    if (external.id == input)
      return {reinterpret_cast<const float*>(external.first.data()), external.first.size() / sizeof(float)};
  PATINA_CHECK(false, "value {} is no external one", input);
  return {};
}

namespace {

// Back to the best instruction set whatever happens.
struct IsaReset {
  ~IsaReset() { use_isa(""); }
};

std::vector<double> as_doubles(const Tensor& tensor) {
  PATINA_CHECK(tensor.contiguous(), "strided output");
  std::vector<float> decoded(static_cast<size_t>(tensor.shape.elements()));
  decode_row(tensor.dtype)(tensor.data, 0, tensor.shape.elements(), decoded.data());
  return {decoded.begin(), decoded.end()};
}

std::vector<double> as_doubles(const RefTensor<double>& tensor) {
  PATINA_CHECK(tensor.strides == contiguous_strides(tensor.shape), "strided output");
  return std::vector<double>(tensor.data, tensor.data + tensor.shape.elements());
}

const Node& node_under_test(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (node->op->name() != "view") return *node;
  PATINA_CHECK(false, "no node");
  return graph.nodes().front();
}

bool same_bits(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) != 0) return false;
  return true;
}

// The op's graph with L = <c, outputs[0]> and its gradients.
struct GradientCase {
  explicit GradientCase(const OpCase& op) : builder(false) {
    const ValueId y = op.build(builder)[0];
    const int64_t elements = builder.graph.maximum_shape(y).elements();
    const ValueId c = builder.constant({1, elements}, [&](int64_t) { return builder.normal(); });
    const ValueId flat = reshape(builder.graph, y, {1, elements}, "L");
    loss = reshape(builder.graph, matmul(builder.graph, flat, c, kNoValue, 1, true, "L"), {1}, "L");
    builder.graph.mark_output(loss);
    forward_nodes = static_cast<int>(builder.graph.nodes().size());
    gradients = differentiate(builder.graph, loss, {}, builder.differentiable());
  }

  void run(Executor& executor) {
    float one = 1;
    builder.bind(executor);
    executor.bind(gradients.seed, &one);
    executor.run({});
  }

  CaseBuilder builder;
  ValueId loss;
  int forward_nodes;
  Differentiation gradients;
};

// Exact derivatives of L with respect to one input: the imaginary part of L after a step of 1e-30 i (Squire and Trapp,
// 1998).
std::vector<double> complex_step(const GradientCase& c, ValueId input) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-30;
  const std::span<const float> x = c.builder.numbers(input);
  std::vector<double> derivative;
  ReferenceExecutor<Complex> executor(c.builder.graph);
  c.builder.bind(executor);
  for (size_t i = 0; i < x.size(); ++i) {
    executor.clear_pokes();
    executor.poke(input, static_cast<int64_t>(i), Complex(static_cast<double>(x[i]), kStep));
    executor.run({}, c.forward_nodes);
    derivative.push_back(executor.tensor(c.loss).at(0).imag() / kStep);
  }
  return derivative;
}

AssertionResult meets(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                      const std::string& what) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const Comparison result = compare(got, expected, {tolerance * largest, 0});
  if (!result.ok() || !(result.relative_norm <= tolerance)) return AssertionFailure() << what << ": " << result.str();
  return AssertionSuccess();
}

}  // namespace

AssertionResult check_kernel(const OpCase& op, const Backend& backend) {
  CaseBuilder builder(true);
  const std::vector<ValueId> outputs = op.build(builder);
  for (const ValueId output : outputs) builder.graph.mark_output(output);

  ReferenceExecutor<double> reference(builder.graph);
  builder.bind(reference);
  reference.run(builder.sizes());
  const Node& node = node_under_test(builder.graph);
  std::vector<RefTensor<double>> in, out;
  for (const ValueId id : node.inputs) in.push_back(id == kNoValue ? RefTensor<double>{} : reference.tensor(id));
  for (const ValueId id : node.outputs) out.push_back(reference.tensor(id));
  const std::vector<Tolerance> tolerances = kernel_tolerance(*node.op, in, out);

  const IsaReset reset;
  // The first results of all targets with fused multiply-add; the portable one has bits of its own.
  std::vector<std::vector<double>> fused, portable;
  for (const std::string& isa : cpu_isas()) {
    use_isa(isa);
    for (const int threads : {1, 2, 3, 5}) {
      const std::string where = fmt::format("{} ({}, {} threads)", op.name, isa, threads);
      int64_t violations = 0;
      const WrappedBackend guards = guarded(backend, &violations);
      ThreadPool pool(threads);
      Executor executor(builder.graph, guards, pool);
      builder.bind(executor);
      executor.run(builder.sizes());
      if (violations != 0) return AssertionFailure() << where << ": wrote outside its outputs or scratch";
      std::vector<std::vector<double>> got;
      for (size_t i = 0; i < outputs.size(); ++i) {
        got.push_back(as_doubles(executor.tensor(outputs[i])));
        const Comparison result = compare(got[i], as_doubles(reference.tensor(outputs[i])), tolerances.at(i));
        if (!result.ok()) return AssertionFailure() << where << ", output " << i << ": " << result.str();
      }
      std::vector<std::vector<double>>& first = isa == "portable" ? portable : fused;
      if (first.empty()) first = got;
      if (!same_bits(first, got)) return AssertionFailure() << where << ": bits depend on threads or instruction set";
    }
  }
  return AssertionSuccess();
}

AssertionResult check_gradient(const OpCase& op, const Backend& backend) {
  GradientCase c(op);
  const float one = 1;
  ReferenceExecutor<double> reference(c.builder.graph);
  c.builder.bind(reference);
  reference.bind(c.gradients.seed, &one);
  reference.run({});
  ThreadPool pool(2);
  Executor executor(c.builder.graph, backend, pool);
  c.run(executor);
  for (const ValueId input : c.builder.differentiable()) {
    const std::string what = fmt::format("{}: gradient of input {}", op.name, input);
    const ValueId gradient = c.gradients.gradient.at(input);
    if (gradient == kNoValue) return AssertionFailure() << what << " is missing";
    const std::vector<double> expected = complex_step(c, input);
    if (const auto result =
            meets(as_doubles(reference.tensor(gradient)), expected, kExactGradient, what + " in double");
        !result)
      return result;
    if (const auto result = meets(as_doubles(executor.tensor(gradient)), expected, gradient_tolerance(op.reduction),
                                  what + " on the backend");
        !result)
      return result;
  }
  return AssertionSuccess();
}

AssertionResult check_adjoint(const OpCase& op, const Backend& backend) {
  GradientCase c(op);
  PATINA_CHECK(c.builder.differentiable().size() == 1, "{} inputs", c.builder.differentiable().size());
  ThreadPool pool(2);
  Executor executor(c.builder.graph, backend, pool);
  c.run(executor);
  const ValueId input = c.builder.differentiable()[0];
  const std::vector<double> dx = as_doubles(executor.tensor(c.gradients.gradient.at(input)));
  const std::span<const float> x = c.builder.numbers(input);
  double inner = 0, terms = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    inner += dx[i] * static_cast<double>(x[i]);
    terms += std::abs(dx[i] * static_cast<double>(x[i]));
  }
  const double loss = as_doubles(executor.tensor(c.loss))[0];
  const double tolerance = gradient_tolerance(op.reduction) * terms;
  if (!(std::abs(loss - inner) <= tolerance && terms > 0 && std::isfinite(tolerance)))
    return AssertionFailure() << op.name << ": <c, f(x)> = " << loss << ", <f'(c), x> = " << inner << ", tolerance "
                              << tolerance;
  return AssertionSuccess();
}

}  // namespace patina
