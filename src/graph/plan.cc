#include "graph/plan.h"

#include <algorithm>
#include <numeric>

namespace patina {

namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

struct Block {
  int64_t bytes;
  int first, last;  // nodes
  ValueId value;    // kNoValue for scratch of node `first`
  int64_t offset = 0;
};

// Places blocks, largest first, at the lowest offset free for their whole lifetime.
int64_t place(std::vector<Block>& blocks) {
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  int64_t peak = 0;
  std::vector<const Block*> placed;  // by offset
  for (Block& block : blocks) {
    int64_t offset = 0;
    for (const Block* other : placed) {
      if (other->last < block.first || block.last < other->first) continue;
      if (offset + block.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    block.offset = offset;
    peak = std::max(peak, offset + block.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &block,
                                   [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                  &block);
  }
  return peak;
}

}  // namespace

Tensor maximum_tensor(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  Tensor tensor;
  tensor.dtype = value.dtype;
  tensor.shape = graph.maximum_shape(id);
  tensor.strides = value.strides;
  tensor.row_map = value.row_map;
  return tensor;
}

int64_t live_bytes(const Graph& graph, const Plan& plan, int node) {
  std::vector<bool> made(plan.storage.size()), read(plan.storage.size());
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& at = graph.nodes()[static_cast<size_t>(i)];
    std::vector<bool>& marks = i <= node ? made : read;
    for (const ValueId value : i <= node ? at.outputs : at.inputs)
      if (value != kNoValue) marks[static_cast<size_t>(plan.storage[static_cast<size_t>(value)])] = true;
  }
  for (const ValueId output : graph.outputs())
    read[static_cast<size_t>(plan.storage[static_cast<size_t>(output)])] = true;
  int64_t bytes = 0;
  for (size_t v = 0; v < plan.storage.size(); ++v)
    if (made[v] && read[v] && plan.offset_bytes[v] >= 0) bytes += aligned(graph.maximum_bytes(static_cast<ValueId>(v)));
  return bytes;
}

Plan plan_memory(const Graph& graph, const Backend& backend, int threads) {
  const size_t values = static_cast<size_t>(graph.values());
  const int nodes = static_cast<int>(graph.nodes().size());
  Plan plan;
  plan.storage.resize(values);
  for (size_t v = 0; v < values; ++v) plan.storage[v] = graph.storage(static_cast<ValueId>(v));

  // Last use of each storage, first without in-place reuse.
  std::vector<int> last(values, -1);
  for (int i = 0; i < nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (const ValueId input : node.inputs)
      if (input != kNoValue) last[static_cast<size_t>(plan.storage[static_cast<size_t>(input)])] = i;
    for (const ValueId output : node.outputs) {
      int& end = last[static_cast<size_t>(plan.storage[static_cast<size_t>(output)])];
      end = std::max(end, i);
    }
  }
  for (const ValueId output : graph.outputs())
    last[static_cast<size_t>(plan.storage[static_cast<size_t>(output)])] = nodes;

  // In-place reuse, in node order: an output takes over the storage of a state, or of an arena value that dies here.
  for (int i = 0; i < nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    const int which = node.op->in_place_input();
    if (which < 0 || static_cast<size_t>(which) >= node.inputs.size() ||
        node.inputs[static_cast<size_t>(which)] == kNoValue)
      continue;
    const ValueId input = node.inputs[static_cast<size_t>(which)], output = node.outputs[0];
    const ValueId root = plan.storage[static_cast<size_t>(input)];
    const Value& owner = graph.value(root);
    const bool state = owner.kind == ValueKind::kState;
    if (!state) {
      if (owner.kind != ValueKind::kComputed || last[static_cast<size_t>(root)] != i) continue;
      // The same layout only: a strided or partial view cannot hold the dense output.
      if (graph.value(input).strides != graph.value(output).strides ||
          graph.value(input).extents != graph.value(output).extents ||
          graph.maximum_bytes(root) != graph.maximum_bytes(output) || graph.value(input).offset != 0)
        continue;
      // Another input of this node may lie in the same storage, as where a residual's gradient is both acc and dy: a
      // kernel would read what it has overwritten.
      bool shared = false;
      for (size_t i_other = 0; i_other < node.inputs.size(); ++i_other) {
        const ValueId other = node.inputs[i_other];
        shared = shared || (i_other != static_cast<size_t>(which) && other != kNoValue &&
                            plan.storage[static_cast<size_t>(other)] == root);
      }
      if (shared) continue;
    }
    const ValueId taken = plan.storage[static_cast<size_t>(output)];
    last[static_cast<size_t>(root)] = std::max(last[static_cast<size_t>(root)], last[static_cast<size_t>(taken)]);
    for (ValueId& storage : plan.storage)
      if (storage == taken) storage = root;
    ++plan.in_place_nodes;
  }

  std::vector<Block> blocks;
  for (size_t v = 0; v < values; ++v) {
    const ValueId id = static_cast<ValueId>(v);
    if (plan.storage[v] != id || graph.value(id).kind != ValueKind::kComputed || graph.value(id).producer < 0) continue;
    blocks.push_back({aligned(graph.maximum_bytes(id)), graph.value(id).producer, last[v], id});
  }
  plan.scratch_bytes.assign(static_cast<size_t>(nodes), 0);
  plan.scratch_offset_bytes.assign(static_cast<size_t>(nodes), 0);
  for (int i = 0; i < nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    if (node.op->name() == "view") continue;
    const KernelEntry& kernel = backend.kernel(node.op->name());
    if (kernel.scratch_bytes == nullptr) continue;
    std::vector<Tensor> in, out;
    for (const ValueId input : node.inputs) in.push_back(input == kNoValue ? Tensor{} : maximum_tensor(graph, input));
    for (const ValueId output : node.outputs) out.push_back(maximum_tensor(graph, output));
    const int64_t bytes = aligned(kernel.scratch_bytes(*node.op, in, out, threads));
    plan.scratch_bytes[static_cast<size_t>(i)] = bytes;
    if (bytes > 0) blocks.push_back({bytes, i, i, kNoValue});
  }

  plan.arena_bytes = place(blocks);
  plan.offset_bytes.assign(values, -1);
  for (const Block& block : blocks) {
    if (block.value == kNoValue)
      plan.scratch_offset_bytes[static_cast<size_t>(block.first)] = block.offset;
    else
      plan.offset_bytes[static_cast<size_t>(block.value)] = block.offset;
  }
  return plan;
}

}  // namespace patina
