#include "ops/copy.h"

namespace patina {

bool can_copy_transposed(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

ValueId transposed_copy(Graph& graph, ValueId weight, std::string_view label) {
  const DType dtype = graph.value(weight).dtype;
  const Extents extents = graph.value(weight).extents;
  PATINA_CHECK(extents.size() == 2 && graph.contiguous(weight) && can_copy_transposed(dtype),
               "{}: transposed copy of {} {}", label, name(dtype), graph.maximum_shape(weight).str());
  return graph.node(std::make_shared<TransposedCopy>(), {weight}, {{extents[1], extents[0]}}, label, dtype)[0];
}

ValueId f32_copy(Graph& graph, ValueId weight, std::string_view label) {
  PATINA_CHECK(graph.value(weight).extents.size() == 2 && graph.contiguous(weight), "{}: F32 copy of {}", label,
               graph.maximum_shape(weight).str());
  return graph.node(std::make_shared<F32Copy>(), {weight}, {graph.value(weight).extents}, label)[0];
}

void DenseCopy::gradient(GradientBuilder& builder, const Node& node) const {
  if (builder.wants(node.inputs[0])) builder.contribute(node.inputs[0], builder.dy(node.outputs[0]));
}

ValueId dense_copy(Graph& graph, ValueId x, std::string_view label) {
  PATINA_CHECK(graph.value(x).extents.size() == 2 && graph.value(x).dtype == DType::kF32, "{}: dense copy of {} {}",
               label, name(graph.value(x).dtype), graph.maximum_shape(x).str());
  return graph.node(std::make_shared<DenseCopy>(), {x}, {graph.value(x).extents}, label)[0];
}

}  // namespace patina
