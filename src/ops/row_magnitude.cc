#include "ops/row_magnitude.h"

namespace patina {

ValueId row_magnitude(Graph& graph, ValueId z, ValueId m, ValueId norm, ValueId acc, std::string_view label) {
  const Extents extents = graph.value(z).extents;
  PATINA_CHECK(extents.size() == 2 && graph.maximum_shape(m) == Shape{extents[1].size} &&
                   graph.maximum_shape(norm) == graph.maximum_shape(m),
               "{}: z {} m {} norm {}", label, graph.maximum_shape(z).str(), graph.maximum_shape(m).str(),
               graph.maximum_shape(norm).str());
  return graph.node(std::make_shared<RowMagnitude>(), {z, m, norm, acc}, {extents}, label)[0];
}

void RowMagnitude::gradient(GradientBuilder& builder, const Node& node) const {
  Graph& graph = builder.graph();
  const ValueId z = node.inputs[0], m = node.inputs[1], acc = node.inputs[3], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (!builder.wants(z) && !builder.wants(m)) return;
  const std::vector<ValueId> gradients =
      graph.node(std::make_shared<RowMagnitudeGrad>(), {z, m, node.inputs[2], dy, builder.so_far(m)},
                 {graph.value(m).extents, graph.value(z).extents}, node.label);
  if (builder.wants(m)) builder.set_gradient(m, gradients[0]);
  if (builder.wants(z)) builder.contribute(z, gradients[1]);
}

ValueId adapted_row_norms(Graph& graph, ValueId norm, ValueId squares, ValueId wa, ValueId ba, ValueId b, float scale,
                          std::string_view label) {
  const Shape shape = graph.maximum_shape(b);
  PATINA_CHECK(shape.rank() == 2 && graph.maximum_shape(norm) == Shape{shape[1]} &&
                   graph.maximum_shape(squares) == Shape{shape[1]} && graph.maximum_shape(wa) == shape &&
                   graph.maximum_shape(ba) == shape,
               "{}: norm {} wa {} ba {} b {}", label, graph.maximum_shape(norm).str(), graph.maximum_shape(wa).str(),
               graph.maximum_shape(ba).str(), shape.str());
  return graph.node(std::make_shared<AdaptedRowNorms>(scale), {norm, squares, wa, ba, b}, {{shape[1]}}, label)[0];
}

}  // namespace patina
