// The memory plan: which bytes of one arena each computed value and each kernel's scratch takes, by lifetime.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "ir/graph.h"

namespace patina {

struct Plan {
  // Per value: the value whose storage it has (itself, or through views and in-place nodes another).
  std::vector<ValueId> storage;
  // Per value that owns arena storage: its offset in bytes; -1 for external values and for values that share storage.
  std::vector<int64_t> offset_bytes;
  // Per node: offset and size of its scratch, size 0 where it needs none.
  std::vector<int64_t> scratch_offset_bytes, scratch_bytes;
  int64_t arena_bytes = 0;  // the peak: exact for runs at the maximal extents, enough for all smaller ones
  int in_place_nodes = 0;
};

// Plans `graph` at its maximal extents. Values keep their storage from the node that makes them to their last use;
// graph outputs to the end.
Plan plan_memory(const Graph& graph, const Backend& backend, int threads);

// Arena bytes of the values that `node` or an earlier node made and a later node, or the caller, reads.
int64_t live_bytes(const Graph& graph, const Plan& plan, int node);

// A value as a tensor at its maximal extents, without data.
Tensor maximum_tensor(const Graph& graph, ValueId id);

}  // namespace patina
