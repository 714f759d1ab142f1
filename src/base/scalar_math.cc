#include "base/scalar_math.h"

#include <bit>
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace patina {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr int kMantissaBits = 52;
constexpr int kExponentBias = 1023;

// ln 2 in two parts; 40 bits in the first, so that its product with any exponent is exact.
constexpr double kLn2High = 0x1.62e42fefa2000p-1;
constexpr double kLn2Low = 0x1.9ef35793c7673p-41;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;

// pi/2 in three parts; 32 bits in the first two, so that their products with 21-bit multiples are exact.
constexpr double kHalfPiHigh = 0x1.921fb54400000p+0;
constexpr double kHalfPiMiddle = 0x1.0b4611a600000p-34;
constexpr double kHalfPiLow = 0x1.3198a2e037073p-69;
constexpr double kInverseHalfPi = 0x1.45f306dc9c883p-1;
constexpr double kLargestAngle = 2e6;

int64_t nearest(double x) { return static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5); }

// 2^exponent, normal numbers only.
double power_of_two(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kExponentBias) << kMantissaBits);
}

// 1/((m-1) m) - z/((m-1) m (m+1) (m+2)) + ..., m = first, up to the factor `last`, by Horner's rule. With z = x^2:
// sin x = x - x z tail(z, 3) and cos x = 1 - z tail(z, 2).
double alternating_tail(double z, int first, int last) {
  double sum = 0.0;
  for (int n = last; n >= first; n -= 2) sum = (1.0 - z * sum) / (static_cast<double>(n) * (n - 1));
  return sum;
}

}  // namespace

// x = k ln 2 + r with |r| <= ln 2 / 2, and exp(r) = 1 + r + r^2 (1/2! + r/3! + ...), to the 14th power.
double exact_exp(double x) {
  constexpr double kOverflow = 0x1.62e42fefa39efp+9;    // the largest x whose exponential is finite
  constexpr double kUnderflow = -0x1.74910d52d3051p+9;  // below it the exponential rounds to zero
  constexpr int kLastPower = 14;
  if (x != x) return x;
  if (x > kOverflow) return kInfinity;
  if (x < kUnderflow) return 0.0;
  const int64_t k = nearest(x * kInverseLn2);
  const double high = x - static_cast<double>(k) * kLn2High;
  const double low = -static_cast<double>(k) * kLn2Low;
  const double r = high + low;
  double tail = 0.0;  // (1/2! + r/3! + ...), nested as (1 + r/3 (1 + r/4 (...))) / 2
  for (int n = kLastPower; n >= 2; --n) tail = (1.0 + r * tail) / n;
  const double result = 1.0 + (high + (low + r * r * tail));
  // In two steps, because the power itself may not be a normal number where the result is.
  return result * power_of_two(k / 2) * power_of_two(k - k / 2);
}

// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = 2 atanh(s), s = f / (2 + f). Since 2 s = f - s
// f, log(1 + f) = f - s (f - 2 (s^2/3 + s^4/5 + ...)): the leading term f is exact.
double exact_log(double x) {
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;
  constexpr int kLastPower = 22;
  if (x != x || x == kInfinity) return x;
  if (x < 0) return kNan;
  if (x == 0) return -kInfinity;
  int64_t k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int64_t>(bits >> kMantissaBits) - kExponentBias;
  constexpr uint64_t kMantissa = (uint64_t{1} << kMantissaBits) - 1;
  double scaled = std::bit_cast<double>((bits & kMantissa) | uint64_t{kExponentBias} << kMantissaBits);
  if (scaled >= kSqrt2) {
    scaled *= 0.5;
    ++k;
  }
  const double f = scaled - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 0.0;  // s^2/3 + s^4/5 + ...
  for (int n = kLastPower; n >= 2; n -= 2) series = z * (series + 1.0 / (n + 1));
  const double correction = s * (f - 2.0 * series);
  return static_cast<double>(k) * kLn2High + (f - (correction - static_cast<double>(k) * kLn2Low));
}

// x = n pi/2 + r + low with |r| <= pi/4 and low its rounding error (three-part reduction), then Taylor series.
void exact_sincos(double x, double* sine, double* cosine) {
  PATINA_CHECK(x >= -kLargestAngle && x <= kLargestAngle, "angle {}", x);
  constexpr int kLastSinePower = 19, kLastCosinePower = 18;
  const int64_t n = nearest(x * kInverseHalfPi);
  const double turns = static_cast<double>(n);
  const double first = x - turns * kHalfPiHigh;  // exact
  const double second = turns * kHalfPiMiddle;   // exact
  const double rough = first - second;
  const double subtracted = first - rough;
  const double rounding = (first - (rough + subtracted)) + (subtracted - second);  // of the difference, by two-sum
  const double residual = rounding - turns * kHalfPiLow;
  const double r = rough + residual;
  const double low = (rough - r) + residual;
  const double z = r * r;
  const double s = r - (r * z * alternating_tail(z, 3, kLastSinePower) - low * (1.0 - 0.5 * z));
  const double c = 1.0 - (z * alternating_tail(z, 2, kLastCosinePower) + r * low);
  switch (n & 3) {
    case 0:
      *sine = s, *cosine = c;
      break;
    case 1:
      *sine = c, *cosine = -s;
      break;
    case 2:
      *sine = -s, *cosine = -c;
      break;
    default:
      *sine = -c, *cosine = s;
      break;
  }
}

}  // namespace patina
