#include "support/tolerance.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ops/dropout.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"
#include "ops/mix_blocks.h"
#include "ops/row_magnitude.h"

namespace patina {

namespace {

using Ref = RefTensor<double>;
constexpr double u = kUnitRoundoff;

double max_abs(const Ref& x) {
  double result = 0;
  if (x.present())
    for (int64_t i = 0; i < x.rows(); ++i)
      for (int64_t j = 0; j < x.columns(); ++j) result = std::max(result, std::abs(x.at(i, j)));
  return result;
}

double min_abs(const Ref& x) {
  double result = std::abs(x.at(0, 0));
  for (int64_t j = 0; j < x.columns(); ++j) result = std::min(result, std::abs(x.at(0, j)));
  return result;
}

// The largest norm of a row, or of a column.
double max_norm(const Ref& x, bool of_rows) {
  double result = 0;
  for (int64_t i = 0; i < (of_rows ? x.rows() : x.columns()); ++i) {
    double squares = 0;
    for (int64_t j = 0; j < (of_rows ? x.columns() : x.rows()); ++j) {
      const double value = of_rows ? x.at(i, j) : x.at(j, i);
      squares += value * value;
    }
    result = std::max(result, squares);
  }
  return std::sqrt(result);
}

// A sum of n terms as a chain begun at acc: each term is rounded at most n + 2 times, and by Cauchy and Schwarz the
// terms' absolute values add up to at most |x|_2 |w|_2.
Tolerance product(int64_t n, double x_norm, double w_norm, double acc) {
  return {static_cast<double>(n + 4) * u * (x_norm * w_norm + acc), 0};
}

// Roundings of a sum of n terms in 16 partial sums (product and sum apart, as on targets without fused operations) and
// the tree.
double sum16_roundings(int64_t n) { return static_cast<double>(n) / 16 + 7; }

// exp is off by at most 1.5 units in the last place, 3 u (tests/backend/vector_math_test.cc); then a sum and a
// quotient.
constexpr double kSigmoidRoundings = 3 + 2;

}  // namespace

std::vector<Tolerance> kernel_tolerance(const Op& op, std::span<const Ref> in, std::span<const Ref> out) {
  const std::string_view name = op.name();
  const auto is = [&](auto... names) { return ((name == names) || ...); };
  if (is("gather_rows", "scatter_rows", "pad_columns", "embedding", "cache_append", "transposed_copy", "f32_copy",
         "dense_copy", "repeat_row"))
    return {{}};
  if (is("add", "scale_by")) return {{0, u}};
  if (is("silu")) return {{0, (kSigmoidRoundings + 1) * u}};
  if (is("modulate")) return {{4 * u * (max_abs(in[0]) * max_abs(in[1]) + max_abs(in[2]) + max_abs(in[4])), 0}};
  if (is("squared_error")) {
    const double most = max_abs(in[0]) + max_abs(in[1]), columns = static_cast<double>(in[0].columns());
    const double row = (sum16_roundings(in[0].columns()) + 6) * u * columns * max_abs(in[2]) * most * most;
    return {{static_cast<double>(in[0].rows()) * row, 2 * u}, {row, 0}};
  }
  if (is("squared_error_grad"))
    return {{8 * u * max_abs(in[3]) * max_abs(in[2]) * (max_abs(in[0]) + max_abs(in[1])), 0}};
  if (is("swiglu")) return {{0, (kSigmoidRoundings + 2) * u}};
  if (is("swiglu_grad")) {
    // 1 - s is off by (roundings of s + 1) u, times z; the factors around it by a few roundings.
    const double slope = (kSigmoidRoundings + 2) * max_abs(in[0]) + kSigmoidRoundings + 4;
    return {{slope * u * max_abs(in[1]) * max_abs(in[2]), 0}, {0, (kSigmoidRoundings + 2) * u}};
  }
  if (is("rms_norm")) {
    const double rstd = sum16_roundings(in[0].columns()) / 2 + 4;  // the root halves a relative error
    return {{0, (rstd + 2) * u}, {0, rstd * u}};
  }
  if (is("rms_norm_grad")) {
    const double x = max_abs(in[0]), r = max_abs(in[2]), g = max_abs(in[3]) * max_abs(in[1]);
    const double roundings = sum16_roundings(in[0].columns()) + 10;
    return {{roundings * u * r * g * (1 + x * x * r * r) + 2 * u * max_abs(in[4]), 0}};
  }
  if (is("rope")) return {{4 * u * max_abs(in[0]) * max_abs(in[2]), 0}};
  if (is("frozen_linear")) {
    const bool forward = static_cast<const FrozenLinear&>(op).direction == FrozenLinear::Direction::kForward;
    return {product(in[0].columns(), max_norm(in[0], true), max_norm(in[1], forward), max_abs(in[2]))};
  }
  if (is("outer_product"))
    return {product(in[0].columns(), max_norm(in[0], true), max_norm(in[1], false), max_abs(in[2]))};
  if (is("matmul")) {
    const auto& matmul = static_cast<const MatMul&>(op);
    return {product(in[0].columns(), std::abs(matmul.scale) * max_norm(in[0], true), max_norm(in[1], matmul.transposed),
                    max_abs(in[2]))};
  }
  if (is("head_loss")) {
    // A logit is off by `logit`, so a probability by a factor e^(2 logit); then sums over the vocabulary.
    const Ref &h = in[0], &w = in[1];
    const double logit = product(h.columns(), max_norm(h, true), max_norm(w, true), 0).absolute;
    const double probability = 2 * logit + static_cast<double>(w.rows() + 16) * u;
    const double rows = static_cast<double>(h.rows());
    return {{rows * (logit + probability), (rows + 4) * u}, {(probability + 8 * u) * 2 * max_abs(w), 4 * u}};
  }
  if (is("mix_blocks")) {
    const int64_t from = static_cast<const MixBlocks&>(op).transposed ? in[1].rows() : in[1].columns();
    const double norm = std::sqrt(static_cast<double>(from)) * max_abs(in[0]);  // of what meets a row of w
    return {product(from, norm, std::sqrt(static_cast<double>(from)) * max_abs(in[1]), max_abs(in[2]))};
  }
  if (is("mix_blocks_grad")) {
    // Runs of 64 rows in 16 partial sums, then the runs; of every pair of blocks at most all numbers of both sides.
    const double columns = static_cast<double>(in[0].columns() / out[0].rows()),
                 rows = static_cast<double>(in[0].rows());
    const double roundings = 64 * (std::ceil(columns / 16) + 1) + rows / 64 + 12;
    const double size = std::sqrt(rows) * max_norm(in[0], true) * max_norm(in[1], true) * std::sqrt(rows);
    return {{roundings * u * size + 4 * u * max_abs(in[2]), 0}};
  }
  if (is("row_magnitude")) {
    const double ratio = max_abs(in[1]) / min_abs(in[2]);
    return {{4 * u * (ratio * max_abs(in[0]) + max_abs(in[3])), 0}};
  }
  if (is("row_magnitude_grad")) {
    const Tolerance sum = product(in[0].rows(), max_norm(in[0], false), max_norm(in[3], false), 0);
    return {{sum.absolute / min_abs(in[2]) + 4 * u * (max_abs(out[0]) + max_abs(in[4])), 0}, {0, 3 * u}};
  }
  if (is("adapted_row_norms")) {
    const double scale = std::abs(static_cast<double>(static_cast<const AdaptedRowNorms&>(op).scale));
    const double ranks = static_cast<double>(in[4].rows());
    const double change = scale * ranks * max_abs(in[4]) * (2 * max_abs(in[2]) + scale * max_abs(in[3]));
    return {{(ranks + 6) * u * (max_abs(in[1]) + change) / (2 * min_abs(out[0])), 2 * u}};
  }
  if (is("dropout")) {
    const double scale = static_cast<double>(static_cast<const Dropout&>(op).scale);
    return {{3 * u * (scale * max_abs(in[0]) + max_abs(in[4])), 0}};
  }
  if (is("cross_entropy")) {
    const double row = (static_cast<double>(in[0].columns()) / 16 + 24 + 6 * max_abs(in[0])) * u;
    return {{static_cast<double>(in[0].rows()) * row, 4 * u}, {row, 4 * u}};
  }
  if (is("cross_entropy_grad")) return {{max_abs(in[3]) * (2 * (max_abs(in[0]) + max_abs(in[2])) + 8) * u, 0}};
  PATINA_CHECK(false, "op {} has no tolerance ({} outputs)", name, out.size());
  return {};
}

}  // namespace patina
