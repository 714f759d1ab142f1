#include "ops/rms_norm.h"

#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rms_norm.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/reduce-inl.h"
#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// Returns rstd.
float rms_norm_row(const float* x, const float* w, float eps, int64_t n, float* y) {
  const float squares = sum16(n, [&](FloatVector sum, auto at) HWY_ATTR {
    const FloatVector v = at.load(x);
    return hn::MulAdd(v, v, sum);
  });
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  const FloatVector scale = hn::Set(Floats(), rstd);
  for_vectors(n, [&](auto at) HWY_ATTR { at.store(hn::Mul(hn::Mul(at.load(x), scale), at.load(w)), y); });
  return rstd;
}

// acc may be null, and may be dx.
void rms_norm_grad_row(const float* x, const float* w, float rstd, const float* dy, const float* acc, int64_t n,
                       float* dx) {
  const float sum = sum16(n, [&](FloatVector partial, auto at) HWY_ATTR {
    return hn::MulAdd(hn::Mul(at.load(dy), at.load(w)), at.load(x), partial);
  });
  const FloatVector scale = hn::Set(Floats(), rstd),
                    along = hn::Set(Floats(), rstd * rstd * (sum / static_cast<float>(n)));
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector across = hn::NegMulAdd(at.load(x), along, hn::Mul(at.load(dy), at.load(w)));
    at.store(acc == nullptr ? hn::Mul(scale, across) : hn::MulAdd(scale, across, at.load(acc)), dx);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(rms_norm_grad_row);

}  // namespace

void rms_norm(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const float eps = static_cast<const RmsNorm&>(op).eps;
  const Rows x(in[0]), w(in[1]), y(out[0]), rstd(out[1]);
  const auto row = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  for_rows(context.pool, x.rows, x.columns,
           [&](int64_t r) { rstd.data[r] = row(x.row(r), w.data, eps, x.columns, y.row(r)); });
}

void rms_norm_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), w(in[1]), rstd(in[2]), dy(in[3]), dx(out[0]);
  const Rows acc(in[4].present() ? in[4] : out[0]);
  const bool accumulate = in[4].present();
  const auto row = HWY_DYNAMIC_DISPATCH(rms_norm_grad_row);
  for_rows(context.pool, x.rows, x.columns, [&](int64_t r) {
    row(x.row(r), w.data, rstd.data[r], dy.row(r), accumulate ? acc.row(r) : nullptr, x.columns, dx.row(r));
  });
}

}  // namespace patina::cpu
#endif
