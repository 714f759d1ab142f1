// How far a product's result is from the exact one.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/threads.h"
#include "ops/frozen_linear.h"
#include "tensor/tensor.h"

namespace patina {

struct Parity {
  double cosine = 0;
  double max_relative = 0;                           // max |error| / max |exact|
  double rms_relative = 0;                           // |error|_2 / |exact|_2
  double bound = 0;                                  // of rms_relative, see ExactProduct
  bool ok() const { return rms_relative <= bound; }  // false for NaN
};
Parity compare_with_exact(std::span<const double> got, std::span<const double> exact, double bound);

// Rows of a result of `rows` rows that are compared, all their columns: the first, the last, and some between.
std::vector<int64_t> compared_rows(int64_t rows);
// Those rows of a dense F32 tensor, as doubles.
std::vector<double> rows_of(const Tensor& tensor, std::span<const int64_t> rows);

// x . W^T (forward) or x . W (backward) in double precision, from the numbers that W decodes to.
struct ExactProduct {
  std::vector<double> values;  // [R, out]
  // What an F32 product may differ from it, |error|_2 / |exact|_2, where operands are random. It is a chain of n fused
  // multiply-adds; each rounds its partial sum by at most u = 2^-24 of it. Roundings of random data behave as
  // independent ones (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput.
  // 41, 2019), and after i of n terms the partial sum is about sqrt(i) |x| |w| / n. That adds up to u |x| |w| / sqrt(2)
  // at most, and 0.4 u |x| |w| for uniform roundings. Accepted is 2 u |x|_F |W|_F / |exact|_F: five times what is
  // expected, and a hundredth of what one rounding of an operand to BF16 costs.
  double bound = 0;
};
// x [R, in], row-major.
ExactProduct exact_product(std::span<const double> x, const Tensor& weight, FrozenLinear::Direction direction,
                           ThreadPool& pool);

}  // namespace patina
