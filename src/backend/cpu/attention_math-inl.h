// Vector types and the vector exponential of attention.
#if defined(PATINA_BACKEND_CPU_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_ATTENTION_MATH_INL_H_
#undef PATINA_BACKEND_CPU_ATTENTION_MATH_INL_H_
#else
#define PATINA_BACKEND_CPU_ATTENTION_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using FloatVector = hn::Vec<FloatTag>;
using IntVector = hn::Vec<IntTag>;

// exp(x) for x <= 88; 0 below the smallest normal number, NaN for NaN. Taylor series to r^7 / 7! for |r| <= ln 2 / 2.
HWY_INLINE FloatVector vector_exp(FloatVector x) {
  constexpr FloatTag d;
  const FloatVector log2e = hn::Set(d, 1.44269504f), magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: rounds to integer
  const FloatVector shifted = hn::MulAdd(x, log2e, magic);
  const FloatVector n = hn::Sub(shifted, magic);
  FloatVector r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  FloatVector p = hn::Set(d, 1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = hn::MulAdd(p, r, hn::Set(d, c));
  const IntVector exponent = hn::ShiftLeft<23>(hn::BitCast(IntTag(), shifted));
  p = hn::BitCast(d, hn::Add(hn::BitCast(IntTag(), p), exponent));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Zero(d), p);
}

// The sum of 16 partial lanes by halves: lanes i and i + 8, then 4, 2, 1.
HWY_INLINE float sum16(float* lanes) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Inner product by 16 partial lanes; what is left over of `count` goes to the first lanes.
HWY_INLINE float dot16(const float* x, const float* y, int64_t count) {
  constexpr FloatTag d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kVectors = 16 / kLanes;
  FloatVector sum[kVectors];
  for (FloatVector& part : sum) part = hn::Zero(d);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int64_t n = 0; n < kVectors; ++n)
      sum[n] = hn::MulAdd(hn::LoadU(d, x + i + n * kLanes), hn::LoadU(d, y + i + n * kLanes), sum[n]);
  float lanes[16];
  for (int64_t n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, lanes + n * kLanes);
  for (int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += x[i] * y[i];
  return sum16(lanes);
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
