#include "ops/matmul.h"

#include "ops/view.h"

namespace patina {

std::string MatMul::attributes() const { return fmt::format("scale={}{}", scale, transposed ? ",transposed" : ""); }

void MatMul::gradient(GradientBuilder& builder, const Node& node) const {
  Graph& graph = builder.graph();
  const ValueId a = node.inputs[0], b = node.inputs[1], acc = node.inputs[2], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (builder.wants(b)) {
    const ValueId left = transpose(graph, transposed ? dy : a, node.label);
    builder.set_gradient(b, matmul(graph, left, transposed ? a : dy, builder.so_far(b), scale, false, node.label));
  }
  if (builder.wants(a))
    builder.set_gradient(a, matmul(graph, dy, b, builder.so_far(a), scale, !transposed, node.label));
}

ValueId matmul(Graph& graph, ValueId a, ValueId b, ValueId acc, float scale, bool transposed, std::string_view label) {
  const Extents &left = graph.value(a).extents, &right = graph.value(b).extents;
  PATINA_CHECK(left.size() == 2 && right.size() == 2 && left[1] == right[transposed ? 1 : 0], "{}: a {} b {}{}", label,
               graph.maximum_shape(a).str(), graph.maximum_shape(b).str(), transposed ? " transposed" : "");
  return graph.node(std::make_shared<MatMul>(scale, transposed), {a, b, acc}, {{left[0], right[transposed ? 0 : 1]}},
                    label)[0];
}

}  // namespace patina
