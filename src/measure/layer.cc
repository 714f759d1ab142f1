#include "measure/layer.h"

#include <array>
#include <cmath>

#include "measure/random_weight.h"
#include "ops/copy.h"

namespace patina {

namespace {

using Direction = FrozenLinear::Direction;

// The cross sites are only in shapes with cross-attention; its k and v, which see the conditioning alone, in none.
enum Site { kQ, kK, kV, kO, kCrossQ, kCrossO, kGate, kUp, kDown, kSites };

// dy is that much smaller than x, so that what comes through q (three products more than through k and v, and two of
// cross-attention) does not drown the rest: each product makes numbers sqrt(K) times larger.
float gradient_scale(const ModelShape& shape) {
  constexpr float kPlain = 1e-4f;
  return shape.cross_attention ? kPlain / static_cast<float>(shape.d) : kPlain;
}

struct Weights {
  std::array<OperandMemory, kSites> memory;
  std::array<Tensor, kSites> tensor;
};

class LayerBench {
 public:
  LayerBench(const MeasureContext& context, const ModelShape& shape, int64_t tokens)
      : context_(context),
        shape_(shape),
        tokens_(tokens),
        x_(random_floats(tokens * shape.d, 1, context.pool)),
        dy_(random_floats(tokens * shape.d, 2, context.pool, gradient_scale(shape))) {
    for (int site = 0; site < kSites; ++site)
      if (shape.cross_attention || (site != kCrossQ && site != kCrossO)) sites_.push_back(site);
  }

  std::vector<Measurement> measure(DType dtype, std::span<const Formulation> formulations) {
    const Weights weights = make_weights(dtype);
    ExactProduct y, dx;
    compute_exact(weights, y, dx);
    std::vector<Line> lines;
    std::array<OperandMemory, kSites> f32;
    std::vector<OperandMemory> buffers;
    if (context_.yardstick != nullptr) {
      for (const int site : sites_) f32[site] = decoded(weights.tensor[site], context_.pool);
      lines.push_back(sgemm_line(f32, buffers));
    }
    for (const Formulation formulation : formulations) {
      if (formulation == Formulation::kMm && !can_copy_transposed(dtype)) {
        Line& line = lines.emplace_back();
        line.measurement = blank(name(dtype), name(formulation));
        line.measurement.note = "a block-quantised weight cannot be copied transposed";
        continue;
      }
      lines.push_back(layer_line(weights, formulation, y, dx));
    }
    return measure_lines(context_, lines);
  }

 private:
  int64_t in(int site) const {
    return site == kO || site == kCrossO ? shape_.h * shape_.c : site == kDown ? shape_.f : shape_.d;
  }
  int64_t out(int site) const {
    const int64_t q = shape_.h * shape_.c, kv = shape_.g * shape_.c;
    const int64_t sizes[] = {q, kv, kv, shape_.d, q, shape_.d, shape_.f, shape_.f, shape_.d};
    return sizes[site];
  }

  Weights make_weights(DType dtype) const {
    Weights weights;
    for (const int site : sites_) {
      weights.memory[site] =
          random_stored_weight(dtype, out(site), in(site), 3 + static_cast<uint64_t>(site), context_.pool);
      weights.tensor[site] = dense(weights.memory[site].data(), dtype, {out(site), in(site)});
    }
    return weights;
  }

  Measurement blank(std::string_view type, std::string_view formulation) const {
    Measurement m;
    m.sites = "layer";
    m.t = tokens_;
    m.type = type;
    m.kind = Measurement::Kind::kLayer;
    m.formulation = formulation;
    for (const int site : sites_)
      m.operations += 4.0 * static_cast<double>(tokens_) * static_cast<double>(in(site)*out(site));
    return m;
  }

  // What y and dx are in double precision. Each of the products on the longest way adds its part to the bound.
  void compute_exact(const Weights& weights, ExactProduct& y, ExactProduct& dx) const {
    const std::vector<int64_t> rows = compared_rows(tokens_);
    double forward_bound = 0, backward_bound = 0;
    const auto forward = [&](const std::vector<double>& a, int site) {
      ExactProduct result = exact_product(a, weights.tensor[site], Direction::kForward, context_.pool);
      forward_bound += result.bound;
      return result.values;
    };
    const auto backward = [&](std::vector<double> sum, const std::vector<double>& a, int site) {
      const ExactProduct result = exact_product(a, weights.tensor[site], Direction::kBackward, context_.pool);
      backward_bound += result.bound;
      sum.resize(result.values.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += result.values[i];
      return sum;
    };
    const std::vector<double> x = rows_of(dense(x_.data(), DType::kF32, {tokens_, shape_.d}), rows);
    std::vector<double> h = forward(forward(x, kQ), kO);
    if (shape_.cross_attention) h = forward(forward(h, kCrossQ), kCrossO);
    y.values = forward(forward(h, kGate), kDown);
    y.bound = forward_bound;
    const std::vector<double> dgate =
        backward({}, rows_of(dense(dy_.data(), DType::kF32, {tokens_, shape_.d}), rows), kDown);
    std::vector<double> dh = backward(backward({}, dgate, kGate), dgate, kUp);
    if (shape_.cross_attention) dh = backward({}, backward({}, dh, kCrossO), kCrossQ);
    const std::vector<double> dq = backward({}, dh, kO);
    dx.values = backward(backward(backward({}, dq, kQ), forward(x, kK), kK), forward(x, kV), kV);
    dx.bound = backward_bound + forward_bound;
  }

  Line layer_line(const Weights& weights, Formulation formulation, const ExactProduct& y, const ExactProduct& dx) {
    auto graph = std::make_unique<Graph>();
    Graph& g = *graph;
    const Extent rows = g.symbol("T", tokens_);
    const ValueId x = g.input("x", DType::kF32, {rows, shape_.d}), dy = g.input("dy", DType::kF32, {rows, shape_.d});
    std::array<ValueId, kSites> w;
    for (const int site : sites_) w[site] = g.frozen("W", weights.tensor[site]);
    const auto forward = [&](ValueId in, int site) { return frozen_linear(g, in, w[site], kNoValue, "y"); };
    const auto backward = [&](ValueId d, int site, ValueId acc) {
      return frozen_linear_gradient(g, d, w[site], acc, "dx", formulation);
    };
    const ValueId q = forward(x, kQ), k = forward(x, kK), v = forward(x, kV), o = forward(q, kO);
    const ValueId h = shape_.cross_attention ? forward(forward(o, kCrossQ), kCrossO) : o;
    const ValueId gate = forward(h, kGate);
    forward(h, kUp);
    g.mark_output(forward(gate, kDown));
    const ValueId dgate = backward(dy, kDown, kNoValue);  // stands for the gradient of up as well
    const ValueId dh = backward(dgate, kUp, backward(dgate, kGate, kNoValue));
    const ValueId d_o = shape_.cross_attention ? backward(backward(dh, kCrossO, kNoValue), kCrossQ, kNoValue) : dh;
    const ValueId dq = backward(d_o, kO, kNoValue);  // and k, v for gradients of their own
    g.mark_output(backward(v, kV, backward(k, kK, backward(dq, kQ, kNoValue))));
    Measurement m = blank(name(weights.tensor[0].dtype), name(formulation));
    Line line = graph_line(context_, m, std::move(graph), {{x, x_.data()}, {dy, dy_.data()}}, {&y, &dx});
    line.slow = formulation == Formulation::kOutprod;
    return line;
  }

  // The same products, into buffers by width. A sum of gradients is left out of the yardstick's work: it is not
  // sgemm's.
  Line sgemm_line(const std::array<OperandMemory, kSites>& f32, std::vector<OperandMemory>& buffers) {
    struct Call {
      bool forward;
      int64_t n, k;
      const float *a, *b;
      float* c;
    };
    std::vector<Call> calls;
    const auto buffer = [&](int64_t columns) {
      buffers.emplace_back(tokens_ * columns * static_cast<int64_t>(sizeof(float)));
      return buffers.back().f32();
    };
    const auto forward = [&](const float* a, int site) {
      float* const c = buffer(out(site));
      calls.push_back({true, out(site), in(site), a, f32[site].f32(), c});
      return c;
    };
    const auto backward = [&](const float* a, int site) {
      float* const c = buffer(in(site));
      calls.push_back({false, in(site), out(site), a, f32[site].f32(), c});
      return c;
    };
    const float* const q = forward(x_.f32(), kQ);
    const float* const k = forward(x_.f32(), kK);
    const float* const v = forward(x_.f32(), kV);
    const float* const o = forward(q, kO);
    const float* const h = shape_.cross_attention ? forward(forward(o, kCrossQ), kCrossO) : o;
    const float* const gate = forward(h, kGate);
    forward(h, kUp);
    forward(gate, kDown);
    const float* const dgate = backward(dy_.f32(), kDown);
    backward(dgate, kUp);
    const float* const dh = backward(dgate, kGate);
    backward(backward(shape_.cross_attention ? backward(backward(dh, kCrossO), kCrossQ) : dh, kO), kQ);
    backward(k, kK);
    backward(v, kV);
    Line line;
    line.measurement = blank("F32", kSgemm);
    line.yardstick = true;
    line.run = [calls, yardstick = context_.yardstick](int64_t tokens) {
      for (const Call& call : calls) yardstick->sgemm(call.forward, tokens, call.n, call.k, call.a, call.b, call.c);
    };
    return line;
  }

  const MeasureContext& context_;
  const ModelShape& shape_;
  const int64_t tokens_;
  OperandMemory x_, dy_;
  std::vector<int> sites_;  // of the shape
};

}  // namespace

std::vector<Measurement> measure_layer(const MeasureContext& context, const ModelShape& shape, int64_t tokens,
                                       std::span<const DType> types, std::span<const Formulation> formulations) {
  LayerBench bench(context, shape, tokens);
  std::vector<Measurement> results;
  for (const DType dtype : types) {
    const std::vector<Measurement> of_type = bench.measure(dtype, formulations);
    results.insert(results.end(), of_type.begin(), of_type.end());
  }
  return results;
}

}  // namespace patina
