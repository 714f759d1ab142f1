#include "ops/cache_append.h"

namespace patina {

ValueId cache_append(Graph& graph, ValueId cache, ValueId x, ValueId position, std::string_view label) {
  PATINA_CHECK(
      graph.value(cache).kind == ValueKind::kState && graph.maximum_shape(cache)[1] == graph.maximum_shape(x)[1],
      "{}: cache {} x {}", label, graph.maximum_shape(cache).str(), graph.maximum_shape(x).str());
  return graph.node(std::make_shared<CacheAppend>(), {cache, x, position}, {graph.value(cache).extents}, label)[0];
}

}  // namespace patina
