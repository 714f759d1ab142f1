#include "measure/emulation.h"

#include <algorithm>

#include "measure/random_weight.h"

namespace patina {

namespace {

constexpr int64_t kMostRows = 512;
constexpr int kTf32Bits = 11, kBf16Bits = 8;

class Emulation {
 public:
  Emulation(const MeasureContext& context, const ProductShape& product, int64_t tokens)
      : context_(context), product_(product), tokens_(tokens) {}

  // dx [T,K], F32 with F32 sums.
  std::vector<double> dx(const Tensor& weight, const OperandMemory& dy) const {
    Graph graph;
    const ValueId in = graph.input("dy", DType::kF32, {tokens_, product_.n});
    graph.mark_output(frozen_linear_backward(graph, in, graph.frozen("W", weight), kNoValue, "dx"));
    Executor executor(graph, context_.backend, context_.pool);
    executor.bind(in, dy.data());
    executor.run({});
    const float* const values = executor.tensor(graph.outputs()[0]).f32();
    return {values, values + tokens_ * product_.k};
  }

  OperandMemory rounded(const OperandMemory& from, int64_t count, int bits) const {
    OperandMemory to(count * static_cast<int64_t>(sizeof(float)));
    std::transform(from.f32(), from.f32() + count, to.f32(), [&](float v) { return rounded_to_bits(v, bits); });
    return to;
  }

  std::vector<EmulatedParity> run() const {
    const int64_t n = product_.n, k = product_.k;
    // The same seed: the second is the first, rounded.
    const OperandMemory w = random_stored_weight(DType::kF32, n, k, 3, context_.pool);
    const OperandMemory w_bf16 = random_stored_weight(DType::kBF16, n, k, 3, context_.pool);
    const OperandMemory w_tf32 = rounded(w, n * k, kTf32Bits);
    const OperandMemory dy = random_floats(tokens_ * n, 2, context_.pool);
    const Tensor bf16 = dense(w_bf16.data(), DType::kBF16, {n, k});

    const std::vector<double> outer_product =
        dx(dense(w_tf32.data(), DType::kF32, {n, k}), rounded(dy, tokens_ * n, kTf32Bits));
    const std::vector<double> narrow = dx(bf16, rounded(dy, tokens_ * n, kBf16Bits)), wide = dx(bf16, dy);
    std::vector<double> narrowest = narrow;
    for (double& value : narrowest) value = static_cast<double>(rounded_to_bits(static_cast<float>(value), kBf16Bits));

    std::vector<EmulatedParity> lines;
    const auto add = [&](const char* what, const Parity& parity) {
      lines.push_back({product_.sites, k, n, tokens_, what, parity.cosine, parity.max_relative});
    };
    add("ggml-cuda: BF16 weight, gradient and result; against TF32 outer product",
        compare_with_exact(narrowest, outer_product, 0));
    add("ggml-cuda: BF16 weight and gradient, F32 result; against TF32 outer product",
        compare_with_exact(narrow, outer_product, 0));
    add("ggml-cuda: BF16 weight, F32 gradient and result; against TF32 outer product",
        compare_with_exact(wide, outer_product, 0));
    const std::vector<int64_t> rows = compared_rows(tokens_);
    const ExactProduct exact = exact_product(rows_of(dense(dy.data(), DType::kF32, {tokens_, n}), rows), bf16,
                                             FrozenLinear::Direction::kBackward, context_.pool);
    std::vector<double> ours;
    for (const int64_t row : rows) ours.insert(ours.end(), wide.begin() + row * k, wide.begin() + (row + 1) * k);
    add("patina: BF16 weight, F32 gradient and result; against double precision",
        compare_with_exact(ours, exact.values, exact.bound));
    return lines;
  }

 private:
  const MeasureContext& context_;
  const ProductShape& product_;
  const int64_t tokens_;
};

}  // namespace

std::vector<EmulatedParity> emulate_ggml_cuda(const MeasureContext& context, const ProductShape& product,
                                              int64_t tokens) {
  return Emulation(context, product, std::min(tokens, kMostRows)).run();
}

}  // namespace patina
