// Every tolerance of the tests, derived from the roundings of an F32 computation. u is the unit roundoff: one rounding
// changes a result by at most a factor 1 + u, n of them by about 1 + n u (Higham, "Accuracy and Stability of Numerical
// Algorithms", 3.1).
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "ops/reference.h"

namespace patina {

// |error| <= absolute + relative * |expected|.
struct Tolerance {
  double absolute = 0, relative = 0;
};

inline constexpr double kUnitRoundoff = 0x1p-24;

// Of one kernel, per output, from its inputs and the expected outputs in double precision. An op without a row fails.
std::vector<Tolerance> kernel_tolerance(const Op& op, std::span<const RefTensor<double>> in,
                                        std::span<const RefTensor<double>> out);

// Of a gradient in F32, relative to the largest element of its tensor and to its norm: the reduction, and the roundings
// of saved values and of the terms.
inline double gradient_tolerance(int64_t reduction) { return static_cast<double>(reduction + 32) * kUnitRoundoff; }

// Of a gradient in double precision against a complex step. Both are sums of at most some hundred terms with rounding
// 1e-16.
inline constexpr double kExactGradient = 1e-10;

}  // namespace patina
