#include "ops/head_loss.h"

#include "ops/elementwise.h"

namespace patina {

void HeadLoss::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId h = node.inputs[0];
  if (!builder.wants(h)) return;
  PATINA_CHECK(with_gradient, "{}: built without its gradient", node.label);
  builder.contribute(h, scale_by(builder.graph(), node.outputs[1], builder.dy(node.outputs[0]), node.label));
}

ValueId head_loss(Graph& graph, ValueId h, ValueId weight, ValueId labels, bool with_gradient, std::string_view label) {
  const Shape w = graph.maximum_shape(weight), in = graph.maximum_shape(h);
  PATINA_CHECK(in[1] == w[1], "{}: h {} W {}", label, in.str(), w.str());
  std::vector<Extents> outputs{{1}};
  if (with_gradient) outputs.push_back(graph.value(h).extents);
  return graph.node(std::make_shared<HeadLoss>(with_gradient), {h, weight, labels}, outputs, label)[0];
}

}  // namespace patina
