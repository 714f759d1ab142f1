// Rows of a frozen table.
#pragma once

#include "ir/graph.h"

namespace patina {

// y [T,D] = rows of W [V,D] (frozen, any stored type) at tokens [T] (int32 in [0, V)). No gradient: W is frozen.
struct Embedding : Op {
  std::string_view name() const override { return "embedding"; }
};
ValueId embedding(Graph& graph, ValueId tokens, ValueId weight, std::string_view label);

}  // namespace patina
