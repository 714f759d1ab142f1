#include "ops/embedding.h"

namespace patina {

ValueId embedding(Graph& graph, ValueId tokens, ValueId weight, std::string_view label) {
  return graph.node(std::make_shared<Embedding>(), {tokens, weight},
                    {{graph.value(tokens).extents[0], graph.value(weight).extents[1]}}, label)[0];
}

}  // namespace patina
