// Elementary functions in double precision that give the same bits on every machine (no libm behind them). Used for
// tables, random numbers and schedules; kernels have their own vector versions in backend/cpu.
#pragma once

namespace patina {

// Relative error below 2e-16 (exp for |x| <= 700, log for normal x > 0); sine and cosine absolute error below 2e-16 for
// |x| <= 2e6, and anything else (NaN too) is an InternalError. Outside their ranges exp and log give what IEEE 754 asks
// for: infinities, zeros, subnormals, NaN. Coefficients are the Taylor and atanh series, to the order that reaches
// double precision on the reduced range.
double exact_exp(double x);
double exact_log(double x);
void exact_sincos(double x, double* sine, double* cosine);
inline double exact_pow(double base, double exponent) { return exact_exp(exponent * exact_log(base)); }

}  // namespace patina
