#include "selftest/guard_site.h"

#include "ops/elementwise.h"
#include "ops/view.h"

namespace patina {

namespace {

// pad_columns with a gradient: the padded columns' slice of dy.
struct DifferentiablePad final : PadColumns {
  using PadColumns::PadColumns;
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const ValueId x = node.inputs[0];
    if (!builder.wants(x)) return;
    Graph& graph = builder.graph();
    builder.contribute(x, columns(graph, builder.dy(node.outputs[0]), first, graph.maximum_shape(x)[1], node.label));
  }
};

}  // namespace

ValueId side_by_side(Graph& graph, ValueId left, ValueId right, std::string_view label) {
  const int64_t middle = graph.maximum_shape(left)[1], all = middle + graph.maximum_shape(right)[1];
  const auto pad = [&](ValueId x, int64_t first) {
    return graph.node(std::make_shared<DifferentiablePad>(first), {x}, {{graph.value(x).extents[0], all}}, label)[0];
  };
  return add(graph, pad(left, 0), pad(right, middle), label);
}

}  // namespace patina
