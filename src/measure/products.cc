#include "measure/products.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "measure/random_weight.h"
#include "ops/copy.h"
#include "ops/view.h"

namespace patina {

namespace {

using Kind = Measurement::Kind;
using Direction = FrozenLinear::Direction;

// Types that share rounds and a yardstick: with more, some would lie far from it in time.
constexpr size_t kTypesTogether = 4;

struct StoredWeight {
  OperandMemory memory;
  Tensor tensor;
};

int64_t f32_bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

// One product at one number of tokens.
class ProductBench {
 public:
  ProductBench(const MeasureContext& context, const ProductShape& product, int64_t tokens)
      : context_(context),
        product_(product),
        tokens_(tokens),
        x_(random_floats(tokens * product.k, 1, context.pool)),
        dy_(random_floats(tokens * product.n, 2, context.pool)) {}

  std::vector<Measurement> measure(std::span<const DType> types, std::span<const Formulation> formulations) {
    std::vector<StoredWeight> weights;
    for (const DType dtype : types) {
      StoredWeight& weight = weights.emplace_back();
      weight.memory = random_stored_weight(dtype, product_.n, product_.k, 3, context_.pool);
      weight.tensor = dense(weight.memory.data(), dtype, {product_.n, product_.k});
    }
    const OperandMemory f32 = decoded(weights[0].tensor, context_.pool);
    std::vector<Measurement> results = measure_direction(Direction::kForward, weights, formulations, f32);
    const std::vector<Measurement> backward = measure_direction(Direction::kBackward, weights, formulations, f32);
    results.insert(results.end(), backward.begin(), backward.end());
    return results;
  }

  std::vector<Measurement> measure_dense_copy() {
    auto graph = std::make_unique<Graph>();
    const ValueId dy = graph->input("dy", DType::kF32, {product_.n, tokens_});
    graph->mark_output(dense_copy(*graph, transpose(*graph, dy, "dy"), "dy"));
    return measure_lines(context_, {graph_line(context_, blank("F32", Kind::kCopy, "dense", 2 * dy_bytes()),
                                               std::move(graph), {{dy, dy_.data()}}, {})});
  }

  Measurement refusal(DType dtype) const {
    Measurement m = blank(name(dtype), Kind::kForward, name(Formulation::kFused), 0);
    m.note = fmt::format("rows of {} values are no whole blocks of {}", product_.k, info(dtype).block_values);
    return m;
  }

 private:
  int64_t x_bytes() const { return f32_bytes(tokens_ * product_.k); }
  int64_t dy_bytes() const { return f32_bytes(tokens_ * product_.n); }

  Measurement blank(std::string_view type, Kind kind, std::string_view formulation, int64_t bytes) const {
    Measurement m;
    m.sites = product_.sites;
    m.count = product_.count;
    m.k = product_.k;
    m.n = product_.n;
    m.t = tokens_;
    m.type = type;
    m.kind = kind;
    m.formulation = formulation;
    m.bytes = bytes;
    if (kind != Kind::kCopy)
      m.operations = 2.0 * static_cast<double>(tokens_ * product_.k) * static_cast<double>(product_.n);
    return m;
  }

  std::vector<Measurement> measure_direction(Direction direction, const std::vector<StoredWeight>& weights,
                                             std::span<const Formulation> formulations, const OperandMemory& f32) {
    const bool forward = direction == Direction::kForward;
    const OperandMemory& in = forward ? x_ : dy_;
    const std::vector<double> rows =
        rows_of(dense(in.data(), DType::kF32, {tokens_, forward ? product_.k : product_.n}), compared_rows(tokens_));
    std::vector<ExactProduct> exact;
    for (const StoredWeight& weight : weights)
      exact.push_back(exact_product(rows, weight.tensor, direction, context_.pool));

    std::vector<Line> lines;
    OperandMemory sgemm_result;
    if (context_.yardstick != nullptr) {
      sgemm_result = OperandMemory(forward ? dy_bytes() : x_bytes());
      lines.push_back(sgemm_line(forward, in, f32, sgemm_result, exact[0]));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      if (forward) lines.push_back(product_line(weights[i].tensor, direction, Formulation::kFused, exact[i]));
      for (const Formulation formulation : forward ? std::span<const Formulation>() : formulations) {
        lines.push_back(product_line(weights[i].tensor, direction, formulation, exact[i]));
        const DType dtype = weights[i].tensor.dtype;
        if (formulation == Formulation::kMm && lines.back().run)
          lines.push_back(copy_line(weights[i].tensor, "transposed", transposed_copy, dtype));
        if (formulation == Formulation::kOutprod && dtype != DType::kF32)
          lines.push_back(copy_line(weights[i].tensor, "f32", f32_copy, DType::kF32));
      }
    }
    return measure_lines(context_, lines);
  }

  Line sgemm_line(bool forward, const OperandMemory& in, const OperandMemory& weight, const OperandMemory& out,
                  const ExactProduct& exact) const {
    const int64_t columns = forward ? product_.n : product_.k, inner = forward ? product_.k : product_.n;
    Line line;
    line.measurement = blank("F32", forward ? Kind::kForward : Kind::kBackward, kSgemm,
                             x_bytes() + dy_bytes() + f32_bytes(product_.k * product_.n));
    line.yardstick = true;
    line.run = [=, yardstick = context_.yardstick, a = in.f32(), b = weight.f32(), c = out.f32()](int64_t tokens) {
      yardstick->sgemm(forward, tokens, columns, inner, a, b, c);
    };
    line.checks = {{dense(out.data(), DType::kF32, {tokens_, columns}), &exact}};
    return line;
  }

  Line product_line(const Tensor& weight, Direction direction, Formulation formulation, const ExactProduct& exact) {
    const bool forward = direction == Direction::kForward;
    const int64_t numbers = product_.n * product_.k, stored = bytes_of(weight.dtype, numbers);
    int64_t bytes = stored + x_bytes() + dy_bytes();
    if (formulation == Formulation::kMm) bytes += 2 * stored;
    if (formulation == Formulation::kOutprod && weight.dtype != DType::kF32) bytes += 2 * f32_bytes(numbers);
    Measurement m = blank(name(weight.dtype), forward ? Kind::kForward : Kind::kBackward, name(formulation), bytes);
    if (formulation == Formulation::kMm && !can_copy_transposed(weight.dtype)) {
      m.note = "a block-quantised weight cannot be copied transposed";
      Line line;
      line.measurement = m;
      return line;
    }
    auto graph = std::make_unique<Graph>();
    const ValueId in = graph->input(forward ? "x" : "dy", DType::kF32,
                                    {graph->symbol("T", tokens_), forward ? product_.k : product_.n});
    const ValueId w = graph->frozen("W", weight);
    graph->mark_output(forward ? frozen_linear(*graph, in, w, kNoValue, "y")
                               : frozen_linear_gradient(*graph, in, w, kNoValue, "dx", formulation));
    Line line = graph_line(context_, m, std::move(graph), {{in, forward ? x_.data() : dy_.data()}}, {&exact});
    line.slow = formulation == Formulation::kOutprod;
    return line;
  }

  Line copy_line(const Tensor& weight, std::string_view what, ValueId (*copy)(Graph&, ValueId, std::string_view),
                 DType to) const {
    auto graph = std::make_unique<Graph>();
    graph->mark_output(copy(*graph, graph->frozen("W", weight), "W"));
    const int64_t numbers = product_.n * product_.k;
    const int64_t bytes = bytes_of(weight.dtype, numbers) + bytes_of(to, numbers);
    return graph_line(context_, blank(name(weight.dtype), Kind::kCopy, what, bytes), std::move(graph), {}, {});
  }

  const MeasureContext& context_;
  const ProductShape& product_;
  const int64_t tokens_;
  OperandMemory x_, dy_;
};

}  // namespace

bool can_store(DType dtype, int64_t k) { return k % info(dtype).block_values == 0; }

std::vector<Measurement> measure_product(const MeasureContext& context, const ProductShape& product, int64_t tokens,
                                         std::span<const DType> types, std::span<const Formulation> formulations) {
  ProductBench bench(context, product, tokens);
  std::vector<Measurement> results;
  const auto append = [&](const std::vector<Measurement>& more) {
    results.insert(results.end(), more.begin(), more.end());
  };
  std::vector<DType> storable;
  for (const DType dtype : types)
    if (can_store(dtype, product.k)) storable.push_back(dtype);
  for (size_t first = 0; first < storable.size(); first += kTypesTogether)
    append(bench.measure(std::span(storable).subspan(first, std::min(kTypesTogether, storable.size() - first)),
                         formulations));
  for (const DType dtype : types)
    if (!can_store(dtype, product.k)) results.push_back(bench.refusal(dtype));
  if (std::ranges::find(formulations, Formulation::kMm) != formulations.end()) append(bench.measure_dense_copy());
  return results;
}

std::vector<LayerSum> layer_sums(std::span<const Measurement> measurements) {
  std::vector<LayerSum> sums;
  const auto is = [](const Measurement& m, int64_t t, std::string_view type) {
    return m.t == t && m.type == type && m.formulation != kSgemm &&
           (m.kind == Kind::kForward || m.kind == Kind::kBackward);
  };
  const auto add = [](double& total, double& yardstick, const Measurement& m) {
    total += m.count * m.ms;
    yardstick += m.count * m.yardstick_ms;
  };
  std::vector<std::pair<int64_t, std::string>> done;
  for (const Measurement& first : measurements) {
    const std::pair key(first.t, first.type);
    if (!is(first, first.t, first.type) || std::ranges::find(done, key) != done.end()) continue;
    done.push_back(key);
    std::vector<LayerSum> of_type;
    double outprod_ms = 0;
    for (const FormulationName& formulation : kFormulations) {
      LayerSum sum{.t = first.t, .type = first.type, .formulation = formulation.formulation};
      bool complete = true;
      for (const Measurement& m : measurements) {
        if (!is(m, sum.t, sum.type)) continue;
        if (m.kind == Kind::kForward)
          add(sum.forward_ms, sum.yardstick_forward_ms, m);
        else if (m.formulation == formulation.name)
          add(sum.backward_ms, sum.yardstick_backward_ms, m);
        else
          continue;
        complete = complete && m.measured();
        sum.invalid = sum.invalid || m.invalid;
      }
      if (!complete || sum.backward_ms == 0) continue;
      if (formulation.formulation == Formulation::kOutprod) outprod_ms = sum.step_ms();
      of_type.push_back(sum);
    }
    for (LayerSum& sum : of_type) {
      sum.over_outprod = outprod_ms / sum.step_ms();
      sums.push_back(sum);
    }
  }
  return sums;
}

}  // namespace patina
