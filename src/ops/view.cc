#include "ops/view.h"

#include "ops/copy.h"
#include "ops/elementwise.h"

namespace patina {

std::string View::attributes() const {
  switch (kind) {
    case Kind::kReshape:
      return "reshape";
    case Kind::kTranspose:
      return "transpose";
    case Kind::kColumns:
      return fmt::format("columns,first={}", first);
  }
  return {};
}

void View::gradient(GradientBuilder& builder, const Node& node) const {
  Graph& graph = builder.graph();
  const ValueId x = node.inputs[0];
  if (!builder.wants(x)) return;
  const ValueId dy = builder.dy(node.outputs[0]);
  switch (kind) {
    case Kind::kReshape:  // has one gradient with what it is a shape of: the builder's
      break;
    case Kind::kTranspose:
      // A copy: most rules and kernels read gradients along dense columns.
      builder.contribute(x, dense_copy(graph, transpose(graph, dy, node.label), node.label));
      break;
    case Kind::kColumns:
      builder.contribute(x, pad_columns(graph, dy, first, graph.maximum_shape(x)[1], node.label));
      break;
  }
}

ValueId transpose(Graph& graph, ValueId x, std::string_view label) {
  const Value& value = graph.value(x);
  PATINA_CHECK(value.extents.size() == 2, "transpose of {}", graph.maximum_shape(x).str());
  return graph.view_node(std::make_shared<View>(View::Kind::kTranspose, 0), x, {value.extents[1], value.extents[0]},
                         Shape{value.strides[1], value.strides[0]}, 0, label);
}

ValueId reshape(Graph& graph, ValueId x, const Extents& extents, std::string_view label) {
  const Value& value = graph.value(x);
  Shape to{};
  int64_t elements = 1;
  std::vector<int64_t> dims;
  for (const Extent& extent : extents) {
    dims.push_back(extent.size);
    elements *= extent.size;
  }
  to = Shape(std::span<const int64_t>(dims));
  PATINA_CHECK(value.strides == contiguous_strides(graph.maximum_shape(x)), "{}: reshape of a strided value", label);
  PATINA_CHECK(elements == graph.maximum_shape(x).elements(), "{}: reshape {} to {}", label,
               graph.maximum_shape(x).str(), to.str());
  return graph.view_node(std::make_shared<View>(View::Kind::kReshape, 0), x, extents, contiguous_strides(to), 0, label);
}

ValueId columns(Graph& graph, ValueId x, int64_t first, int64_t count, std::string_view label) {
  const Value& value = graph.value(x);
  PATINA_CHECK(value.extents.size() == 2 && first >= 0 && count > 0 && first + count <= value.extents[1].size,
               "{}: columns [{}, {}) of {}", label, first, first + count, graph.maximum_shape(x).str());
  return graph.view_node(std::make_shared<View>(View::Kind::kColumns, first), x, {value.extents[0], count},
                         value.strides, first * value.strides[1], label);
}

}  // namespace patina
