// Kernels of frozen_linear and matmul: operands of the blocked product.
#include "ops/frozen_linear.h"

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

}  // namespace

void frozen_linear(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& attributes = static_cast<const FrozenLinear&>(op);
  const Tensor &x = in[0], &weight = in[1], &acc = in[2], &y = out[0];
  const bool forward = attributes.direction == FrozenLinear::Direction::kForward;
  if (attributes.few_rows && x.shape[0] < kFewRows && x.strides[1] == 1) {
    few_row_product(x, weight, acc, y, context.pool);
    return;
  }
  product(x.shape[0], y.shape[1], x.shape[1], left(x), RightOperand::frozen(weight, forward), y.f32(), y.strides[0],
          begin_at(acc, y), context.pool, context.scratch);
}

void matmul(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& attributes = static_cast<const MatMul&>(op);
  const Tensor &a = in[0], &b = in[1], &acc = in[2], &y = out[0];
  const int64_t along_k = attributes.transposed ? b.strides[1] : b.strides[0];
  const int64_t along_n = attributes.transposed ? b.strides[0] : b.strides[1];
  product(a.shape[0], y.shape[1], a.shape[1], left(a, attributes.scale),
          RightOperand::numbers(b.f32(), along_k, along_n), y.f32(), y.strides[0], begin_at(acc, y), context.pool,
          context.scratch);
}

// Of both ops.
int64_t matrix_product_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, int threads) {
  return product_scratch_bytes(out[0].shape[1], in[0].shape[1], threads);
}

}  // namespace patina::cpu
