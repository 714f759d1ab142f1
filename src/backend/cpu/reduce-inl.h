// Sums in 16 partial sums: lane l takes the columns i with i % 16 == l, in order, and the partial sums are combined in
// a fixed tree. So the result is the same for any vector width (given fused multiply-adds).
#if defined(PATINA_BACKEND_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_REDUCE_INL_H_
#undef PATINA_BACKEND_CPU_REDUCE_INL_H_
#else
#define PATINA_BACKEND_CPU_REDUCE_INL_H_
#endif

#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

constexpr int64_t kPartials = 16;
constexpr int64_t kPartialVectors = kPartials / kLanes;

// The sum of 16 numbers, as ((p0 + p8) + (p4 + p12)) + ...: halves are added until one is left. Overwrites them.
inline float tree_sum(float* HWY_RESTRICT p) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) p[i] += p[i + half];
  return p[0];
}

// accumulate(sum, at) returns the partial sums `sum` with the terms of the columns at `at` added. It is also called for
// the columns from n up to a multiple of 16, where all loads give zeros.
template <typename Accumulate>
HWY_INLINE float sum16(int64_t n, Accumulate accumulate) {
  FloatVector sums[kPartialVectors];
  for (FloatVector& sum : sums) sum = hn::Zero(Floats());
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials)
    for (int64_t v = 0; v < kPartialVectors; ++v) sums[v] = accumulate(sums[v], Whole{i + v * kLanes});
  if (i < n)
    for (int64_t v = 0; v < kPartialVectors; ++v) {
      const int64_t column = i + v * kLanes;
      sums[v] = accumulate(sums[v], Partial{column, std::clamp<int64_t>(n - column, 0, kLanes)});
    }
  alignas(64) float partials[kPartials];
  for (int64_t v = 0; v < kPartialVectors; ++v) hn::Store(sums[v], Floats(), partials + v * kLanes);
  return tree_sum(partials);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
