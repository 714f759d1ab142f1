// A place where the gradient of a frozen product is no dense matrix, for the rungs that must see mm give way there.
#pragma once

#include "ir/graph.h"

namespace patina {

// [T,N], [T,M] -> [T,N+M]: two values side by side. Their gradients are slices of columns, with gaps between the rows.
ValueId side_by_side(Graph& graph, ValueId left, ValueId right, std::string_view label);

}  // namespace patina
