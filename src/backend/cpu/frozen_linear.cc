// Kernels of frozen_linear and matmul: operands of the blocked product.
#include "ops/frozen_linear.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/product.h"
#include "ops/matmul.h"

namespace patina::cpu {

namespace {

Addend addend(const Tensor& acc) {
  if (!acc.present()) return {};
  PATINA_CHECK(acc.shape[1] <= 1 || acc.strides[1] == 1, "acc {} strides {}", acc.shape.str(), acc.strides.str());
  return {acc.f32(), acc.strides[0]};
}

LeftOperand left(const Tensor& x) { return {x.f32(), x.strides[0], x.strides[1]}; }

// b [K,N] as it lies, or as its transpose [N,K].
RightOperand right(const Tensor& b, bool transposed, float scale) {
  return RightOperand::numbers(b.f32(), b.strides[transposed ? 1 : 0], b.strides[transposed ? 0 : 1], scale);
}

ProductTerm branch_term(const FrozenLinear::Branch& branch, const Tensor& a, const Tensor& b) {
  return {a.shape[1], left(a), right(b, branch.transposed, branch.scale)};
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
  product(x.shape[0], y.shape[1], std::span(terms).first(attributes.branch ? 2 : 1), addend(acc), y.f32(), y.strides[0],
          context.pool, context.scratch);
}

void matmul(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& attributes = static_cast<const MatMul&>(op);
  const Tensor &a = in[0], &b = in[1], &acc = in[2], &y = out[0];
  product(a.shape[0], y.shape[1], a.shape[1], left(a), right(b, attributes.transposed, attributes.scale), addend(acc),
          y.f32(), y.strides[0], context.pool, context.scratch);
}

// Of both ops.
int64_t matrix_product_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, int threads) {
  const int64_t inner = std::max(in[0].shape[1], in.size() > 3 ? in[3].shape[1] : 0);
  return product_scratch_bytes(out[0].shape[1], inner, threads);
}

}  // namespace patina::cpu
