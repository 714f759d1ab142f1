#include "ops/rms_norm.h"

namespace patina {

void RmsNorm::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId x = node.inputs[0];
  if (!builder.wants(x)) return;
  Graph& graph = builder.graph();
  builder.set_gradient(x,
                       graph.node(std::make_shared<RmsNormGrad>(),
                                  {x, node.inputs[1], node.outputs[1], builder.dy(node.outputs[0]), builder.so_far(x)},
                                  {graph.value(x).extents}, node.label)[0]);
}

ValueId rms_norm(Graph& graph, ValueId x, ValueId weight, float eps, std::string_view label) {
  const Extents extents = graph.value(x).extents;
  PATINA_CHECK(extents.size() == 2 && graph.maximum_shape(weight) == Shape{extents[1].size}, "{}: x {} w {}", label,
               graph.maximum_shape(x).str(), graph.maximum_shape(weight).str());
  return graph.node(std::make_shared<RmsNorm>(eps), {x, weight}, {extents, {extents[0]}}, label)[0];
}

}  // namespace patina
