// How much of a model's weights is in memory where they are streamed (graph/stream.h).
#pragma once

#include <algorithm>
#include <span>

#include "graph/stream.h"

namespace patina {

// Two layers: one in use, and one that is read meanwhile.
template <typename Layer>
StreamPlan plan_layer_stream(const Graph& graph, std::span<const std::span<const std::byte>> files,
                             std::span<const Layer> layers) {
  constexpr int64_t kLayersAhead = 2;
  int64_t layer_bytes = 0;
  for (const Layer& layer : layers) {
    int64_t bytes = 0;
    for (const Tensor* weight : layer.products()) bytes += bytes_of(weight->dtype, weight->shape.elements());
    layer_bytes = std::max(layer_bytes, bytes);
  }
  return plan_stream(graph, files, kLayersAhead * layer_bytes);
}

}  // namespace patina
