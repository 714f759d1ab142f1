// Products of F32 values: adapter branches and their gradients.
#pragma once

#include "ir/graph.h"

namespace patina {

// y [M,N] = acc + scale * a [M,K] . b, where b is [K,N], or [N,K] with `transposed` (the layout of weights, "out, in").
// acc is optional and may share storage with y; a and b may have any strides.
// Gradients: da = scale * dy . b^T; db = scale * a^T . dy, or scale * dy^T . a where transposed: always in b's own
// layout, so that a parameter's gradient is accumulated in place. Order of operations as in FrozenLinear, with scale *
// b rounded first.
struct MatMul : Op {
  MatMul(float scale_factor, bool b_is_transposed) : scale(scale_factor), transposed(b_is_transposed) {}
  std::string_view name() const override { return "matmul"; }
  std::string attributes() const override;
  int in_place_input() const override { return 2; }
  void gradient(GradientBuilder& builder, const Node& node) const override;

  float scale;
  bool transposed;
};

ValueId matmul(Graph& graph, ValueId a, ValueId b, ValueId acc, float scale, bool transposed, std::string_view label);

}  // namespace patina
