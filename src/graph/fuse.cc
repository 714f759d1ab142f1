#include "graph/fuse.h"

#include <vector>

#include "ops/frozen_linear.h"
#include "ops/matmul.h"

namespace patina {

namespace {

// The node as an op of class T, or null.
template <typename T>
const T* as(const Node& node) {
  return dynamic_cast<const T*>(node.op.get());
}

}  // namespace

int fuse_branches(Graph& graph) {
  std::vector<int> readers(static_cast<size_t>(graph.values()), 0);
  for (const Node& node : graph.nodes())
    for (const ValueId input : node.inputs)
      if (input != kNoValue) ++readers[static_cast<size_t>(input)];
  for (const ValueId output : graph.outputs()) ++readers[static_cast<size_t>(output)];

  std::vector<int> order;
  int joined = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    order.push_back(i);
    const Node& second = graph.nodes()[static_cast<size_t>(i)];
    if (as<FrozenLinear>(second) == nullptr && as<MatMul>(second) == nullptr) continue;
    const ValueId between = second.inputs[2];
    if (between == kNoValue || readers[static_cast<size_t>(between)] != 1 || graph.value(between).producer < 0)
      continue;
    const int before = graph.value(between).producer;
    const Node& first = graph.nodes()[static_cast<size_t>(before)];
    const bool branch_first = as<MatMul>(first) != nullptr;
    const Node &frozen = branch_first ? second : first, &thin = branch_first ? first : second;
    const FrozenLinear* const product = as<FrozenLinear>(frozen);
    const MatMul* const branch = as<MatMul>(thin);
    if (product == nullptr || branch == nullptr || product->branch || product->few_rows) continue;
    // A gradient that is accumulated into a state is no branch.
    if (graph.value(graph.storage(second.outputs[0])).kind != ValueKind::kComputed) continue;
    auto op = std::make_shared<FrozenLinear>(*product);
    op->branch = FrozenLinear::Branch{branch->scale, branch->transposed, branch_first};
    graph.replace(i, std::move(op),
                  {frozen.inputs[0], frozen.inputs[1], first.inputs[2], thin.inputs[0], thin.inputs[1]}, frozen.label);
    std::erase(order, before);
    ++joined;
  }
  graph.reorder(order);
  return joined;
}

}  // namespace patina
