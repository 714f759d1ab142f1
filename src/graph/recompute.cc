#include "graph/recompute.h"

#include <algorithm>
#include <map>

namespace patina {

namespace {

class Pass {
 public:
  Pass(Graph& graph, int forward_nodes)
      : graph_(graph), forward_(forward_nodes), nodes_(static_cast<int>(graph.nodes().size())) {
    last_forward_use_.assign(static_cast<size_t>(graph.values()), -1);
    for (int i = 0; i < forward_; ++i)
      for (const ValueId input : graph.nodes()[static_cast<size_t>(i)].inputs)
        if (input != kNoValue) last_forward_use_[static_cast<size_t>(input)] = i;
  }

  void run(const NodeRange& segment) {
    PATINA_CHECK(segment.begin <= segment.end && segment.end <= forward_, "nodes {} to {} of {}", segment.begin,
                 segment.end, forward_);
    std::map<ValueId, ValueId> again;  // value -> its second computation
    int first_reader = nodes_;
    std::vector<char> needed(static_cast<size_t>(segment.end - segment.begin), 0);
    const auto need = [&](ValueId value) {
      if (dropped(value, segment)) needed[static_cast<size_t>(graph_.value(value).producer - segment.begin)] = 1;
    };
    for (int i = nodes_ - 1; i >= forward_; --i)
      for (const ValueId input : graph_.nodes()[static_cast<size_t>(i)].inputs)
        if (dropped(input, segment)) {
          need(input);
          first_reader = i;
        }
    for (int i = segment.end - 1; i >= segment.begin; --i)
      if (needed[static_cast<size_t>(i - segment.begin)])
        for (const ValueId input : graph_.nodes()[static_cast<size_t>(i)].inputs) need(input);
    for (int i = segment.begin; i < segment.end; ++i) {
      if (!needed[static_cast<size_t>(i - segment.begin)]) continue;
      std::vector<ValueId> inputs = graph_.nodes()[static_cast<size_t>(i)].inputs;
      for (ValueId& input : inputs)
        if (const auto found = again.find(input); found != again.end()) input = found->second;
      before_[first_reader].push_back(static_cast<int>(graph_.nodes().size()));
      const std::vector<ValueId> outputs = graph_.repeat(i, std::move(inputs));
      for (size_t o = 0; o < outputs.size(); ++o) again[graph_.nodes()[static_cast<size_t>(i)].outputs[o]] = outputs[o];
      ++repeated_;
    }
    for (int i = first_reader; i < nodes_; ++i)
      for (const auto& [first, second] : again)
        if (dropped(first, segment)) graph_.replace_input(i, first, second);
  }

  // Puts the repeated nodes where they belong.
  int finish() {
    std::vector<int> order;
    for (int i = 0; i < nodes_; ++i) {
      if (const auto found = before_.find(i); found != before_.end())
        order.insert(order.end(), found->second.begin(), found->second.end());
      order.push_back(i);
    }
    graph_.reorder(order);
    return repeated_;
  }

 private:
  // Made in the segment and read by no later forward node.
  bool dropped(ValueId value, const NodeRange& segment) const {
    if (value == kNoValue || static_cast<size_t>(value) >= last_forward_use_.size()) return false;
    const int producer = graph_.value(value).producer;
    return producer >= segment.begin && producer < segment.end &&
           last_forward_use_[static_cast<size_t>(value)] < segment.end;
  }

  Graph& graph_;
  const int forward_, nodes_;
  std::vector<int> last_forward_use_;  // per value
  std::map<int, std::vector<int>> before_;
  int repeated_ = 0;
};

}  // namespace

int recompute(Graph& graph, int forward_nodes, std::span<const NodeRange> segments) {
  Pass pass(graph, forward_nodes);
  for (const NodeRange& segment : segments) pass.run(segment);
  return pass.finish();
}

std::vector<NodeRange> recompute_segments(std::span<const NodeRange> layers, int segments) {
  const int count = static_cast<int>(layers.size()), pieces = std::min(segments, count);
  std::vector<NodeRange> ranges;
  for (int i = 0; i + 1 < pieces; ++i)
    ranges.push_back({layers[static_cast<size_t>(i * count / pieces)].begin,
                      layers[static_cast<size_t>((i + 1) * count / pieces - 1)].end});
  return ranges;
}

}  // namespace patina
