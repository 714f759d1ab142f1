#include "ops/frozen_linear.h"

namespace patina {

std::string FrozenLinear::attributes() const {
  return std::string(direction == Direction::kForward ? "forward" : "backward") + (few_rows ? ",few_rows" : "");
}

void FrozenLinear::gradient(GradientBuilder& builder, const Node& node) const {
  PATINA_CHECK(direction == Direction::kForward, "second derivative at {}", node.label);
  const ValueId x = node.inputs[0], acc = node.inputs[2], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (builder.wants(x))
    builder.set_gradient(x, frozen_linear_backward(builder.graph(), dy, node.inputs[1], builder.so_far(x), node.label));
}

ValueId frozen_linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, std::string_view label, bool few_rows) {
  const Shape w = graph.maximum_shape(weight), in = graph.maximum_shape(x);
  PATINA_CHECK(w.rank() == 2 && in.rank() == 2 && in[1] == w[1], "{}: x {} W {}", label, in.str(), w.str());
  return graph.node(std::make_shared<FrozenLinear>(FrozenLinear::Direction::kForward, few_rows), {x, weight, acc},
                    {{graph.value(x).extents[0], w[0]}}, label)[0];
}

ValueId frozen_linear_backward(Graph& graph, ValueId dy, ValueId weight, ValueId acc, std::string_view label) {
  const Shape w = graph.maximum_shape(weight), in = graph.maximum_shape(dy);
  PATINA_CHECK(w.rank() == 2 && in.rank() == 2 && in[1] == w[0], "{}: dy {} W {}", label, in.str(), w.str());
  return graph.node(std::make_shared<FrozenLinear>(FrozenLinear::Direction::kBackward, false), {dy, weight, acc},
                    {{graph.value(dy).extents[0], w[1]}}, label)[0];
}

}  // namespace patina
