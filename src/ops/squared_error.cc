#include "ops/squared_error.h"

namespace patina {

void SquaredError::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId y = node.inputs[0], dloss = builder.dy(node.outputs[0]);
  PATINA_CHECK(builder.dy(node.outputs[1]) == kNoValue, "{}: rows have no gradient", node.label);
  if (!builder.wants(y)) return;
  Graph& graph = builder.graph();
  builder.contribute(y, graph.node(std::make_shared<SquaredErrorGrad>(), {y, node.inputs[1], node.inputs[2], dloss},
                                   {graph.value(y).extents}, node.label)[0]);
}

SquaredErrorValues squared_error(Graph& graph, ValueId y, ValueId target, ValueId weight, std::string_view label) {
  const Extents extents = graph.value(y).extents;
  PATINA_CHECK(extents.size() == 2 && graph.value(target).extents == extents && graph.value(weight).extents == extents,
               "{}: y {} target {} weight {}", label, graph.maximum_shape(y).str(), graph.maximum_shape(target).str(),
               graph.maximum_shape(weight).str());
  const std::vector<ValueId> outputs =
      graph.node(std::make_shared<SquaredError>(), {y, target, weight}, {{1}, {extents[0]}}, label);
  return {outputs[0], outputs[1]};
}

}  // namespace patina
