// Adaptive modulation: rows scaled, shifted and gated by numbers that belong to their sequence (adaLN of Peebles and
// Xie, arXiv 2212.09748).
#pragma once

#include "ir/graph.h"

namespace patina {

// y [T,D] = acc [T,D] + x [T,D] * factor [B,D] at rows [T] + shift [B,D] at rows [T]    (rows: int32, each in [0, B))
// acc and shift are optional; acc may share storage with y. Gradients of x (the same op on dy, without shift) and acc;
// factor and shift get none: only inputs and frozen weights make them. Columns are dense, rows have any stride.
struct Modulate : Op {
  std::string_view name() const override { return "modulate"; }
  int in_place_input() const override { return 4; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};

ValueId modulate(Graph& graph, ValueId x, ValueId factor, ValueId shift, ValueId acc, ValueId rows,
                 std::string_view label);

}  // namespace patina
