// Recompute: forward work is done again in backward instead of keeping its results in memory in between.
#pragma once

#include <span>
#include <vector>

#include "ir/formulation.h"
#include "ir/graph.h"

namespace patina {

// How gradients are computed. Neither choice changes a bit of them.
struct GradientOptions {
  Formulation formulation = Formulation::kFused;  // of frozen products (docs/formulations.md)
  // 1: all forward values are kept for backward. More: the layers are cut into so many segments, and only what crosses
  // their borders is kept; the rest is computed again.
  int segments = 1;
};

// Nodes [begin, end) of the forward part of a graph, such as those of a layer.
struct NodeRange {
  int begin, end;
};

// Changes a differentiated graph whose first `forward_nodes` nodes are the forward part: of each segment (in order,
// apart from each other) only the values that later forward nodes read are kept; what its backward nodes read besides
// is computed again, right before the first of them. The same kernels on the same inputs: results are equal to the bit.
// Returns how many nodes run again.
int recompute(Graph& graph, int forward_nodes, std::span<const NodeRange> segments);

// `layers`, as many segments of even length as asked for (at most one a layer), without the last: its backward comes
// right after its forward, so that to compute it again would save nothing.
std::vector<NodeRange> recompute_segments(std::span<const NodeRange> layers, int segments);

}  // namespace patina
