// Rotary position embedding, rotate-halves form (Su et al., arXiv 2104.09864).
#pragma once

#include "ir/graph.h"

namespace patina {

// x [T, H*C], positions [T] (int32 in [0, P)), table [P, W] F32: W/2 cosines, then W/2 sines; W <= C is even.
// In each head, for i < W/2:  y_i = x_i cos_i - x_{i+W/2} sin_i,  y_{i+W/2} = x_{i+W/2} cos_i + x_i sin_i; columns from
// W on pass through. `inverse` rotates back (sines negated): the gradient. May work in place.
struct Rope : Op {
  Rope(int64_t head_width, bool backwards) : width(head_width), inverse(backwards) {}
  std::string_view name() const override { return "rope"; }
  std::string attributes() const override { return fmt::format("C={}{}", width, inverse ? ",inverse" : ""); }
  int in_place_input() const override { return 0; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
  int64_t width;
  bool inverse;
};

ValueId rope(Graph& graph, ValueId x, ValueId positions, ValueId table, int64_t head_width, std::string_view label);

}  // namespace patina
