#include "ops/cross_entropy.h"

namespace patina {

void CrossEntropy::gradient(GradientBuilder& builder, const Node& node) const {
  Graph& graph = builder.graph();
  const ValueId logits = node.inputs[0], acc = node.inputs[2], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (!builder.wants(logits)) return;
  builder.contribute(logits,
                     graph.node(std::make_shared<CrossEntropyGrad>(), {logits, node.inputs[1], node.outputs[1], dy},
                                {graph.value(logits).extents}, node.label)[0]);
}

ValueId cross_entropy(Graph& graph, ValueId logits, ValueId labels, ValueId acc, std::string_view label) {
  const Extents extents = graph.value(logits).extents;
  PATINA_CHECK(extents.size() == 2 && extents[0] == graph.value(labels).extents[0], "{}: logits {} labels {}", label,
               graph.maximum_shape(logits).str(), graph.maximum_shape(labels).str());
  return graph.node(std::make_shared<CrossEntropy>(), {logits, labels, acc}, {{1}, {extents[0]}}, label)[0];
}

}  // namespace patina
