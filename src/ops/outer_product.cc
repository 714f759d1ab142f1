#include "ops/outer_product.h"

namespace patina {

ValueId outer_product(Graph& graph, ValueId dy, ValueId weight_f32, ValueId acc, std::string_view label) {
  const Shape w = graph.maximum_shape(weight_f32), in = graph.maximum_shape(dy);
  PATINA_CHECK(w.rank() == 2 && in.rank() == 2 && in[1] == w[0] && graph.contiguous(weight_f32), "{}: dy {} W {}",
               label, in.str(), w.str());
  PATINA_CHECK(graph.value(weight_f32).dtype == DType::kF32, "{}: W is {}", label, name(graph.value(weight_f32).dtype));
  return graph.node(std::make_shared<OuterProduct>(), {dy, weight_f32, acc}, {{graph.value(dy).extents[0], w[1]}},
                    label)[0];
}

}  // namespace patina
