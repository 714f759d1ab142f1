// Products of fewer than eight rows, compiled once per instruction set: bound by decoding and reading W once.
#if defined(PATINA_BACKEND_CPU_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_FEW_ROWS_INL_H_
#undef PATINA_BACKEND_CPU_FEW_ROWS_INL_H_
#else
#define PATINA_BACKEND_CPU_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "backend/cpu/product_job.h"
#include "backend/cpu/reduce-inl.h"
#include "quant/decode.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

constexpr int64_t kStretch = 1024;  // values decoded at a time: 4 KB a row, and a multiple of 16 and of every block

// partials[r] += x * decoded row r, over `count` columns.
HWY_INLINE void add_products(int64_t count, const float* HWY_RESTRICT x, const float (*HWY_RESTRICT decoded)[kStretch],
                             float (*HWY_RESTRICT partials)[kPartials]) {
  const Floats d;
  FloatVector sums[kRowsTogether][kPartialVectors];
  for (int64_t r = 0; r < kRowsTogether; ++r)
    for (int64_t v = 0; v < kPartialVectors; ++v) sums[r][v] = hn::Load(d, partials[r] + v * kLanes);
  const auto add = [&](int64_t v, auto at) HWY_ATTR {
    const FloatVector left = at.load(x);
    for (int64_t r = 0; r < kRowsTogether; ++r) sums[r][v] = hn::MulAdd(left, at.load(decoded[r]), sums[r][v]);
  };
  int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials)
    for (int64_t v = 0; v < kPartialVectors; ++v) add(v, Whole{i + v * kLanes});
  if (i < count)
    for (int64_t v = 0; v < kPartialVectors; ++v)
      add(v, Partial{i + v * kLanes, std::clamp<int64_t>(count - i - v * kLanes, 0, kLanes)});
  for (int64_t r = 0; r < kRowsTogether; ++r)
    for (int64_t v = 0; v < kPartialVectors; ++v) hn::Store(sums[r][v], d, partials[r] + v * kLanes);
}

// Rows [first, last) of W against up to seven rows of x.
HWY_INLINE void few_rows(const Tensor& x, const Tensor& weight, const Tensor& acc, const Tensor& y, DecodeRow decode,
                         int64_t first, int64_t last) {
  alignas(64) float decoded[kRowsTogether][kStretch];
  const int64_t rows = x.shape[0], k = weight.shape[1];
  for (int64_t n = first; n < last; n += kRowsTogether) {
    const int64_t together = std::min(kRowsTogether, last - n);
    const std::byte* stored[kRowsTogether];
    for (int64_t r = 0; r < kRowsTogether; ++r) stored[r] = weight.row(n + std::min(r, together - 1));
    alignas(64) float partials[kFewRows][kRowsTogether][kPartials];
    std::fill_n(&partials[0][0][0], rows * kRowsTogether * kPartials, 0.0f);
    for (int64_t k0 = 0; k0 < k; k0 += kStretch) {
      const int64_t count = std::min(kStretch, k - k0);
      for (int64_t r = 0; r < kRowsTogether; ++r) decode(stored[r], k0, count, decoded[r]);
      for (int64_t i = 0; i < rows; ++i) add_products(count, x.f32() + i * x.strides[0] + k0, decoded, partials[i]);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t r = 0; r < together; ++r)
        y.f32()[i * y.strides[0] + n + r] =
            tree_sum(partials[i][r]) + (acc.present() ? acc.f32()[i * acc.strides[0] + n + r] : 0.0f);
  }
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
