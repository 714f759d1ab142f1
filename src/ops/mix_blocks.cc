#include "ops/mix_blocks.h"

namespace patina {

ValueId mix_blocks(Graph& graph, ValueId x, ValueId w, ValueId acc, bool transposed, std::string_view label) {
  const Shape in = graph.maximum_shape(x), shape = graph.maximum_shape(w);
  const int64_t to = shape[transposed ? 1 : 0], from = shape[transposed ? 0 : 1];
  PATINA_CHECK(in.rank() == 2 && shape.rank() == 2 && in[1] % from == 0, "{}: x {} w {}{}", label, in.str(),
               shape.str(), transposed ? " transposed" : "");
  return graph.node(std::make_shared<MixBlocks>(transposed), {x, w, acc},
                    {{graph.value(x).extents[0], in[1] / from * to}}, label)[0];
}

void MixBlocks::gradient(GradientBuilder& builder, const Node& node) const {
  Graph& graph = builder.graph();
  const ValueId x = node.inputs[0], w = node.inputs[1], acc = node.inputs[2], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (builder.wants(w))
    builder.set_gradient(
        w, graph.node(std::make_shared<MixBlocksGrad>(), {transposed ? x : dy, transposed ? dy : x, builder.so_far(w)},
                      {graph.value(w).extents}, node.label)[0]);
  if (builder.wants(x)) builder.set_gradient(x, mix_blocks(graph, dy, w, builder.so_far(x), !transposed, node.label));
}

}  // namespace patina
