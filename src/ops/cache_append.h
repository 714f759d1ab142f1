// Keys and values kept from run to run for generation.
#pragma once

#include "ir/graph.h"

namespace patina {

// (cache [S,W] state, x [T,W], position [1] int32) -> the cache with rows [position, position + T) replaced by x, in
// place.
struct CacheAppend : Op {
  std::string_view name() const override { return "cache_append"; }
  int in_place_input() const override { return 0; }
};
ValueId cache_append(Graph& graph, ValueId cache, ValueId x, ValueId position, std::string_view label);

}  // namespace patina
