#include "ops/squared_error.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/squared_error.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/reduce-inl.h"
#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

float squared_error_row(const float* y, const float* target, const float* weight, int64_t n) {
  return sum16(n, [&](FloatVector sum, auto at) HWY_ATTR {
    const FloatVector error = hn::Sub(at.load(y), at.load(target));
    return hn::MulAdd(hn::Mul(at.load(weight), error), error, sum);
  });
}

// dy may be y.
void squared_error_grad_row(const float* y, const float* target, const float* weight, float twice, int64_t n,
                            float* dy) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector error = hn::Sub(at.load(y), at.load(target));
    at.store(hn::Mul(hn::Mul(hn::Set(Floats(), twice), at.load(weight)), error), dy);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(squared_error_row);
HWY_EXPORT(squared_error_grad_row);

}  // namespace

void squared_error(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows y(in[0]), target(in[1]), weight(in[2]);
  float* const rows = out[1].f32();
  const auto row = HWY_DYNAMIC_DISPATCH(squared_error_row);
  for_rows(context.pool, y.rows, y.columns,
           [&](int64_t t) { rows[t] = row(y.row(t), target.row(t), weight.row(t), y.columns); });
  double loss = 0.0;
  for (int64_t t = 0; t < y.rows; ++t) loss += static_cast<double>(rows[t]);
  out[0].f32()[0] = static_cast<float>(loss);
}

void squared_error_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows y(in[0]), target(in[1]), weight(in[2]), dy(out[0]);
  const float twice = 2.0f * in[3].f32()[0];
  const auto row = HWY_DYNAMIC_DISPATCH(squared_error_grad_row);
  for_rows(context.pool, dy.rows, dy.columns,
           [&](int64_t t) { row(y.row(t), target.row(t), weight.row(t), twice, dy.columns, dy.row(t)); });
}

}  // namespace patina::cpu
#endif
