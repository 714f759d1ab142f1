// Fusion: nodes that can be one are made one.
#pragma once

#include "ir/graph.h"

namespace patina {

// Joins each frozen product with the thin product of its adapter's branch where one adds to the other's result and
// nothing else reads that: y = x W^T + (h B^T), dx = (dh A) + dy W. The branch then costs no pass over y of its own,
// and the chain of each element stays the same: so do all bits. Returns how many were joined.
int fuse_branches(Graph& graph);

}  // namespace patina
