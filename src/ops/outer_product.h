// A product as a sum of outer products.
#pragma once

#include "ir/graph.h"

namespace patina {

// dx [T,K] = acc [T,K] + sum over n of dy[:, n] (x) W[n, :], with dy [T,N] of any strides and W [N,K] in F32.
// acc is optional and may share storage with dx. Order of operations as in FrozenLinear: one chain of fused
// multiply-adds along n, begun at acc. No gradient: it is the gradient of a frozen product.
struct OuterProduct : Op {
  std::string_view name() const override { return "outer_product"; }
  int in_place_input() const override { return 2; }
};
ValueId outer_product(Graph& graph, ValueId dy, ValueId weight_f32, ValueId acc, std::string_view label);

}  // namespace patina
