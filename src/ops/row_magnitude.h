// What DoRA (Liu et al., arXiv 2402.09353) adds to LoRA: rows of the adapted weight with magnitudes of their own.
#pragma once

#include "ir/graph.h"

namespace patina {

// y [T,N] = acc + (m[n] / norm[n]) * z [T,N], for z = V x, norm the norms of V's rows and m [N] their new magnitudes.
// acc is optional and may share storage with y. Gradients: dz = (m / norm) * dy; dm[n] = (sum over t of dy z) /
// norm[n], runs of rows of a fixed length summed apart and added in order; none for norm, which the paper takes as a
// constant (its section 4.3).
struct RowMagnitude : Op {
  std::string_view name() const override { return "row_magnitude"; }
  int in_place_input() const override { return 3; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
// (z, m, norm, dy, acc [N] or none) -> dm [N] = acc + its sum, dz [T,N].
struct RowMagnitudeGrad : Op {
  std::string_view name() const override { return "row_magnitude_grad"; }
  int in_place_input() const override { return 4; }
};
ValueId row_magnitude(Graph& graph, ValueId z, ValueId m, ValueId norm, ValueId acc, std::string_view label);

// The norms of the rows of W + s B A in closed form, W [N,K], B [N,R], A [R,K]:
//   norm[n] = sqrt(squares[n] + s * sum_r b[r,n] * (2 * wa[r,n] + s * ba[r,n]))
// from squares [N] = the rows' |W|^2, wa [R,N] = A W^T, ba [R,N] = A A^T B^T and b [R,N] = B^T, all with dense columns.
// Written over the state `norm` [N].
struct AdaptedRowNorms : Op {
  explicit AdaptedRowNorms(float scale_factor) : scale(scale_factor) {}
  std::string_view name() const override { return "adapted_row_norms"; }
  std::string attributes() const override { return fmt::format("scale={}", scale); }
  int in_place_input() const override { return 0; }
  float scale;
};
ValueId adapted_row_norms(Graph& graph, ValueId norm, ValueId squares, ValueId wa, ValueId ba, ValueId b, float scale,
                          std::string_view label);

// A norm below this is taken to be this: a row of zeros stays one whatever its magnitude, and divides nothing by 0.
inline constexpr float kLeastRowNorm = 1e-12f;

}  // namespace patina
