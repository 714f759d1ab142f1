#include "ops/cross_entropy.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/reduce-inl.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

float log_sum_exp(const float* x, int64_t n) {
  const Floats d;
  float greatest = x[0];
  for (int64_t i = 1; i < n; ++i) greatest = std::max(greatest, x[i]);
  const FloatVector shift = hn::Set(d, greatest);
  // Beyond the row, loads give zeros, whose terms must not count.
  const int64_t whole = n / kPartials * kPartials;
  float sum = sum16(
      whole, [&](FloatVector so_far, auto at) HWY_ATTR { return hn::Add(so_far, exp(d, hn::Sub(at.load(x), shift))); });
  for (int64_t i = whole; i < n; ++i) sum += hn::GetLane(exp(d, hn::Set(d, x[i] - greatest)));
  return greatest + hn::GetLane(log(d, hn::Set(d, sum)));
}

// y = scale * exp(x - shift); y may be x.
void scaled_exp(const float* x, float shift, float scale, int64_t n, float* y) {
  const Floats d;
  for_vectors(n, [&](auto at) HWY_ATTR {
    at.store(hn::Mul(hn::Set(d, scale), exp(d, hn::Sub(at.load(x), hn::Set(d, shift)))), y);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(log_sum_exp);
HWY_EXPORT(scaled_exp);

}  // namespace

void cross_entropy(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows logits(in[0]);
  float* const lse = out[1].f32();
  const auto row = HWY_DYNAMIC_DISPATCH(log_sum_exp);
  for_rows(context.pool, logits.rows, logits.columns, [&](int64_t m) { lse[m] = row(logits.row(m), logits.columns); });
  double loss = in[2].present() ? static_cast<double>(in[2].f32()[0]) : 0.0;
  for (int64_t m = 0; m < logits.rows; ++m)
    loss += static_cast<double>(lse[m] - logits.row(m)[row_index(in[1], m, logits.columns)]);
  out[0].f32()[0] = static_cast<float>(loss);
}

void cross_entropy_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows logits(in[0]), dlogits(out[0]);
  const float *lse = in[2].f32(), dloss = in[3].f32()[0];
  const auto row = HWY_DYNAMIC_DISPATCH(scaled_exp);
  for_rows(context.pool, logits.rows, logits.columns, [&](int64_t m) {
    row(logits.row(m), lse[m], dloss, logits.columns, dlogits.row(m));
    dlogits.row(m)[row_index(in[1], m, logits.columns)] -= dloss;
  });
}

}  // namespace patina::cpu
#endif  // HWY_ONCE
