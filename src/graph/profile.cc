#include "graph/profile.h"

#include <algorithm>

namespace patina {

std::vector<Phase> phases(const Graph& graph) {
  const int loss = graph.value(graph.outputs().front()).producer;
  std::vector<Phase> phases;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const bool again = graph.nodes()[static_cast<size_t>(i)].repeated;
    phases.push_back(again ? Phase::kRepeated : i <= loss ? Phase::kForward : Phase::kBackward);
  }
  return phases;
}

double run_operations(const Graph& graph, std::span<const int64_t> sizes, FunctionRef<double(const Node&)> pairs,
                      bool with_repeated) {
  const std::vector<Phase> phase = phases(graph);
  double operations = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if ((phase[i] == Phase::kRepeated && !with_repeated) || node.op->name() == "view") continue;
    const auto tensors = [&](const std::vector<ValueId>& ids) {
      std::vector<Tensor> result;
      for (const ValueId id : ids) {
        result.emplace_back();
        if (id == kNoValue) continue;
        result.back().dtype = graph.value(id).dtype;
        result.back().shape = graph.shape(id, sizes);
      }
      return result;
    };
    operations += work_of(*node.op, tensors(node.inputs), tensors(node.outputs), pairs(node)).operations;
  }
  return operations;
}

void Profile::start() { lap_start_ = std::chrono::steady_clock::now(); }

Profile::Row& Profile::end_lap(std::string_view op, Phase phase) {
  const auto now = std::chrono::steady_clock::now();
  Row& row = rows_[{op, phase}];
  row.op = op;
  row.phase = phase;
  ++row.calls;
  row.ms += std::chrono::duration<double, std::milli>(now - lap_start_).count();
  lap_start_ = now;
  return row;
}

void Profile::lap(std::string_view what) { end_lap(what, Phase::kOutside); }

void Profile::lap(const Executor::Finished& finished) {
  const size_t index = static_cast<size_t>(&finished.node - graph_.nodes().data());
  Row& row = end_lap(finished.node.op->name(), phases_.at(index));
  const Work work =
      work_of(*finished.node.op, finished.inputs, finished.outputs, visible_pairs(*finished.node.op, finished.inputs));
  row.work.operations += work.operations;
  row.work.bytes += work.bytes;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  std::ranges::stable_sort(rows, std::ranges::greater(), &Row::ms);
  return rows;
}

double Profile::ms() const {
  double ms = 0;
  for (const auto& [key, row] : rows_) ms += row.ms;
  return ms;
}

}  // namespace patina
