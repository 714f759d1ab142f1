#include "ops/modulate.h"

namespace patina {

void Modulate::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId x = node.inputs[0], factor = node.inputs[1], shift = node.inputs[2], rows = node.inputs[3],
                acc = node.inputs[4], dy = builder.dy(node.outputs[0]);
  PATINA_CHECK(!builder.wants(factor) && (shift == kNoValue || !builder.wants(shift)),
               "{}: factors and shifts have no gradient", node.label);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (!builder.wants(x)) return;
  builder.set_gradient(x, modulate(builder.graph(), dy, factor, kNoValue, builder.so_far(x), rows, node.label));
}

ValueId modulate(Graph& graph, ValueId x, ValueId factor, ValueId shift, ValueId acc, ValueId rows,
                 std::string_view label) {
  const Extents extents = graph.value(x).extents;
  const auto fits = [&](ValueId sequences) {
    return sequences == kNoValue || graph.value(sequences).extents[1] == extents[1];
  };
  PATINA_CHECK(extents.size() == 2 && fits(factor) && fits(shift) && graph.value(rows).extents[0] == extents[0] &&
                   (acc == kNoValue || graph.value(acc).extents == extents),
               "{}: x {} factor {}", label, graph.maximum_shape(x).str(), graph.maximum_shape(factor).str());
  return graph.node(std::make_shared<Modulate>(), {x, factor, shift, rows, acc}, {extents}, label)[0];
}

}  // namespace patina
