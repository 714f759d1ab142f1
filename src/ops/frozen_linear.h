// The frozen product, both ways: what the program exists for.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace patina {

// forward   y [T,N]  = acc + x [T,K] . W^T     W [N,K] frozen, any stored type, optional row map
// backward  dx [T,K] = acc + dy [T,N] . W      (kBackward)
// acc is optional and may share storage with the output. x and dy may have any strides. There is no gradient for W: it
// is frozen, or a copy of a frozen weight (ops/copy.h). The gradient for x follows the builder's formulation; a layer
// whose weight is stored as [in,out] is a backward product, and its gradient the forward one. Each
// output is one chain of fused multiply-adds along the contraction, begun at acc, in order; with `few_rows` a product
// of fewer than 8 rows takes dot products with 16 fixed partial sums instead (generation only: bound by reading W
// once).
//
// With a branch (inputs 3 and 4, put there by graph/fuse.h) the product of an adapter's factor is added in the same
// pass over the output: left [T,R] . (scale * right), right [R,..] or its transpose. It comes before or after the
// frozen product, as the matmul did that it stands for: the same chain.
struct FrozenLinear : Op {
  enum class Direction : uint8_t { kForward, kBackward };
  struct Branch {
    float scale;
    bool transposed;  // right lies as [..,R]
    bool first;       // before the frozen product
  };
  FrozenLinear(Direction which, bool allow_few_rows) : direction(which), few_rows(allow_few_rows) {}
  std::string_view name() const override { return "frozen_linear"; }
  std::string attributes() const override;
  int in_place_input() const override { return 2; }
  void gradient(GradientBuilder& builder, const Node& node) const override;

  Direction direction;
  bool few_rows;
  std::optional<Branch> branch = {};
};

ValueId frozen_linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, std::string_view label,
                      bool few_rows = false);
ValueId frozen_linear_backward(Graph& graph, ValueId dy, ValueId weight, ValueId acc, std::string_view label);

// dx as frozen_linear_backward gives it, by a formulation's nodes. kMm takes a dense dy and a weight that
// can_copy_transposed() only (InternalError otherwise); kOutprod takes an F32 weight as it lies, others through a copy.
ValueId frozen_linear_gradient(Graph& graph, ValueId dy, ValueId weight, ValueId acc, std::string_view label,
                               Formulation formulation);

}  // namespace patina
