// Copies: a frozen weight transposed or in F32, as formulations of its gradient need them, and views made dense.
#pragma once

#include "ir/graph.h"

namespace patina {

// y [K,N] = W^T of W [N,K] (F32, F16 or BF16; optional row map, which is applied), in W's own type. No gradient: W is
// frozen.
struct TransposedCopy : Op {
  std::string_view name() const override { return "transposed_copy"; }
};
ValueId transposed_copy(Graph& graph, ValueId weight, std::string_view label);
bool can_copy_transposed(DType dtype);  // not block-quantised

// y [N,K] = W [N,K] in F32, from any stored type, in the order of its row map. No gradient: W is frozen.
struct F32Copy : Op {
  std::string_view name() const override { return "f32_copy"; }
};
ValueId f32_copy(Graph& graph, ValueId weight, std::string_view label);

// y [T,D] = x [T,D] (F32, any strides), dense. Gradient: dx = dy.
struct DenseCopy : Op {
  std::string_view name() const override { return "dense_copy"; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
ValueId dense_copy(Graph& graph, ValueId x, std::string_view label);

}  // namespace patina
