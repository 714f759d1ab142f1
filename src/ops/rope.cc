#include "ops/rope.h"

namespace patina {

namespace {

ValueId rope_node(Graph& graph, ValueId x, ValueId positions, ValueId table, int64_t width, bool inverse,
                  std::string_view label) {
  return graph.node(std::make_shared<Rope>(width, inverse), {x, positions, table}, {graph.value(x).extents}, label)[0];
}

}  // namespace

void Rope::gradient(GradientBuilder& builder, const Node& node) const {
  if (!builder.wants(node.inputs[0])) return;
  builder.contribute(node.inputs[0], rope_node(builder.graph(), builder.dy(node.outputs[0]), node.inputs[1],
                                               node.inputs[2], width, !inverse, node.label));
}

ValueId rope(Graph& graph, ValueId x, ValueId positions, ValueId table, int64_t head_width, std::string_view label) {
  const Shape in = graph.maximum_shape(x), angles = graph.maximum_shape(table);
  PATINA_CHECK(in[1] % head_width == 0 && angles[1] % 2 == 0 && angles[1] <= head_width, "{}: x {} C {} table {}",
               label, in.str(), head_width, angles.str());
  return rope_node(graph, x, positions, table, head_width, false, label);
}

}  // namespace patina
