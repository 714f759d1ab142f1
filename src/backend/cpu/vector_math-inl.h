// The exponential and the logarithm of all kernels. Every operation is an exactly rounded one that we wrote (fused
// multiply-adds by name), so that all instruction sets with fused multiply-add give the same bits.
#if defined(PATINA_BACKEND_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_VECTOR_MATH_INL_H_
#undef PATINA_BACKEND_CPU_VECTOR_MATH_INL_H_
#else
#define PATINA_BACKEND_CPU_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ln 2 in two parts; 15 bits in the first, so that its product with any exponent is exact.
constexpr float kLn2High = 0x1.62e4p-1f;
constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// e^x for any x: 0 below the subnormal numbers and at -inf, inf where the result overflows, NaN for NaN. Off by less
// than 0.9 units in the last place (0.83 measured over every 997th float; 1.2 without fused multiply-add). x = k ln 2 +
// r with |r| <= ln 2 / 2, the Taylor series of e^r to r^7 (its remainder is 5e-9), and 2^k in two steps because it may
// itself be no normal number.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  constexpr float kLeast = -104.0f, kGreatest = 89.0f;  // rounds to 0, overflows
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, kLeast)), hn::Set(d, kGreatest));
  const V k = hn::Round(hn::Mul(clamped, hn::Set(d, 0x1.715476p+0f)));
  V r = hn::NegMulAdd(k, hn::Set(d, kLn2High), clamped);
  r = hn::NegMulAdd(k, hn::Set(d, kLn2Low), r);
  V p = hn::Set(d, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ConvertTo(di, k), half = hn::ShiftRight<1>(exponent), bias = hn::Set(di, 127);
  const auto power = [&](auto e) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, bias))); };
  const V result = hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// ln x: -inf at 0, inf at inf, NaN for negative numbers and NaN. Off by less than 0.9 units in the last place (0.80
// measured). x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and ln(1 + f) = 2 atanh(s) = f - s (f - 2 (s^2/3 +
// s^4/5 +
// ...)) with s = f / (2 + f), |s| < 0.172: to s^10 / 11 the remainder is 1e-10.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  const hn::RebindToSigned<D> di;
  constexpr int kSqrtHalf = 0x3f3504f3;  // the bits of sqrt(1/2)
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p23f)), x);
  const auto above = hn::Sub(hn::BitCast(di, normal), hn::Set(di, kSqrtHalf));
  const auto exponent = hn::ShiftRight<23>(above);
  const V f = hn::Sub(hn::BitCast(d, hn::Add(hn::Sub(above, hn::ShiftLeft<23>(exponent)), hn::Set(di, kSqrtHalf))),
                      hn::Set(d, 1.0f));
  const V k = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(subnormal, hn::Set(d, 23.0f)));
  const V s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f))), z = hn::Mul(s, s);
  V series = hn::Set(d, 2.0f / 11.0f);
  series = hn::MulAdd(series, z, hn::Set(d, 2.0f / 9.0f));
  series = hn::MulAdd(series, z, hn::Set(d, 2.0f / 7.0f));
  series = hn::MulAdd(series, z, hn::Set(d, 2.0f / 5.0f));
  series = hn::MulAdd(series, z, hn::Set(d, 2.0f / 3.0f));
  const V correction = hn::NegMulAdd(k, hn::Set(d, kLn2Low), hn::Mul(s, hn::NegMulAdd(series, z, f)));
  V result = hn::MulAdd(k, hn::Set(d, kLn2High), hn::Sub(f, correction));
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), result);
  // Also where x is NaN.
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), result, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
