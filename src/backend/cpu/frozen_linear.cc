// Kernels of frozen_linear and matmul: operands of the blocked product.
#include "ops/frozen_linear.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/product.h"
#include "ops/matmul.h"

namespace patina::cpu {

namespace {

// Puts acc into the output where it does not lie there already. Returns whether there is one to add to.
bool begin_at(const Tensor& acc, const Tensor& out) {
  if (!acc.present()) return false;
  PATINA_CHECK(acc.shape[1] <= 1 || acc.strides[1] == 1, "acc {} strides {}", acc.shape.str(), acc.strides.str());
  if (acc.data != out.data)
    for (int64_t row = 0; row < out.shape[0]; ++row)
      std::memcpy(out.f32() + row * out.strides[0], acc.f32() + row * acc.strides[0],
                  static_cast<size_t>(out.shape[1]) * sizeof(float));
  return true;
}

LeftOperand left(const Tensor& x, float scale = 1.0f) { return {x.f32(), x.strides[0], x.strides[1], scale}; }

// b [K,N] as it lies, or as its transpose [N,K].
RightOperand right(const Tensor& b, bool transposed) {
  return RightOperand::numbers(b.f32(), b.strides[transposed ? 1 : 0], b.strides[transposed ? 0 : 1]);
}

ProductTerm branch_term(const FrozenLinear::Branch& branch, const Tensor& a, const Tensor& b) {
  return {a.shape[1], left(a, branch.scale), right(b, branch.transposed)};
}

}  // namespace

void frozen_linear(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& attributes = static_cast<const FrozenLinear&>(op);
  const Tensor &x = in[0], &weight = in[1], &acc = in[2], &y = out[0];
  const bool forward = attributes.direction == FrozenLinear::Direction::kForward;
  if (attributes.few_rows && x.shape[0] < kFewRows && x.strides[1] == 1) {
    few_row_product(x, weight, acc, y, context.pool);
    return;
  }
  const ProductTerm frozen{x.shape[1], left(x), RightOperand::frozen(weight, forward)};
  ProductTerm terms[kMaxTerms] = {frozen, frozen};
  if (attributes.branch) terms[attributes.branch->first ? 0 : 1] = branch_term(*attributes.branch, in[3], in[4]);
  product(x.shape[0], y.shape[1], std::span(terms).first(attributes.branch ? 2 : 1), y.f32(), y.strides[0],
          begin_at(acc, y), context.pool, context.scratch);
}

void matmul(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& attributes = static_cast<const MatMul&>(op);
  const Tensor &a = in[0], &b = in[1], &acc = in[2], &y = out[0];
  product(a.shape[0], y.shape[1], a.shape[1], left(a, attributes.scale), right(b, attributes.transposed), y.f32(),
          y.strides[0], begin_at(acc, y), context.pool, context.scratch);
}

// Of both ops.
int64_t matrix_product_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, int threads) {
  const int64_t inner = std::max(in[0].shape[1], in.size() > 3 ? in[3].shape[1] : 0);
  return product_scratch_bytes(out[0].shape[1], inner, threads);
}

}  // namespace patina::cpu
