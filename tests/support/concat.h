// Two values side by side: a graph in which gradients arrive as slices of columns, with gaps between rows.
#pragma once

#include "ops/elementwise.h"
#include "ops/view.h"

namespace patina {

// pad_columns with a gradient: the padded columns' slice of dy.
struct PadColumnsInGraph : PadColumns {
  using PadColumns::PadColumns;
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const ValueId x = node.inputs[0];
    if (!builder.wants(x)) return;
    Graph& graph = builder.graph();
    builder.contribute(x, columns(graph, builder.dy(node.outputs[0]), first, graph.maximum_shape(x)[1], node.label));
  }
};

// [T,N], [T,M] -> [T,N+M]
inline ValueId concat_columns(Graph& graph, ValueId a, ValueId b, std::string_view label) {
  const int64_t left = graph.maximum_shape(a)[1], all = left + graph.maximum_shape(b)[1];
  const auto pad = [&](ValueId x, int64_t first) {
    return graph.node(std::make_shared<PadColumnsInGraph>(first), {x}, {{graph.value(x).extents[0], all}}, label)[0];
  };
  return add(graph, pad(a, 0), pad(b, left), label);
}

}  // namespace patina
