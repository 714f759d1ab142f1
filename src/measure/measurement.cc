#include "measure/measurement.h"

#include <algorithm>

#include "measure/rounds.h"

namespace patina {

namespace {

constexpr int64_t kWarmUpTokens = 64;

struct GraphCall {
  GraphCall(std::unique_ptr<Graph> complete, const Backend& backend, ThreadPool& pool)
      : graph(std::move(complete)), executor(*graph, backend, pool) {}
  std::unique_ptr<Graph> graph;
  Executor executor;
};

// Of the result that is furthest off, in units of what is accepted.
Parity check(const Line& line) {
  std::optional<Parity> worst;
  for (const auto& [tensor, exact] : line.checks) {
    const std::vector<int64_t> rows = compared_rows(tensor.shape[0]);
    const Parity parity = compare_with_exact(rows_of(tensor, rows), exact->values, exact->bound);
    if (!worst || !(parity.rms_relative / parity.bound <= worst->rms_relative / worst->bound)) worst = parity;
  }
  return *worst;
}

}  // namespace

std::string_view name(Measurement::Kind kind) {
  constexpr std::string_view kNames[] = {"forward", "backward", "copy", "layer"};
  return kNames[static_cast<size_t>(kind)];
}

Line graph_line(const MeasureContext& context, Measurement measurement, std::unique_ptr<Graph> graph,
                const std::vector<std::pair<ValueId, void*>>& inputs, const std::vector<const ExactProduct*>& exact) {
  const auto call = std::make_shared<GraphCall>(std::move(graph), context.backend, context.pool);
  for (const auto& [id, data] : inputs) call->executor.bind(id, data);
  Line line;
  line.measurement = std::move(measurement);
  for (size_t i = 0; i < exact.size(); ++i)
    line.checks.emplace_back(call->executor.tensor(call->graph->outputs().at(i)), exact[i]);
  line.run = [call = call.get()](int64_t tokens) {
    call->executor.run(std::span<const int64_t>(&tokens, call->graph->symbols() > 0 ? 1 : 0));
  };
  line.owner = call;
  return line;
}

std::vector<Measurement> measure_lines(const MeasureContext& context, const std::vector<Line>& lines) {
  std::vector<Contender> contenders;
  for (const Line& line : lines) {
    if (!line.run) continue;
    const int64_t tokens = line.measurement.t;
    contenders.push_back({.run = [&line, tokens] { line.run(tokens); },
                          .warm_up = [&line, tokens] { line.run(std::min(tokens, kWarmUpTokens)); },
                          .yardstick = line.yardstick,
                          .slow = line.slow});
  }
  const bool valid = contenders.empty() || measure_rounds(contenders, context.reps);
  std::vector<Measurement> results;
  auto contender = contenders.begin();
  for (const Line& line : lines) {
    Measurement& m = results.emplace_back(line.measurement);
    if (!line.run) continue;
    m.ms = contender->median_ms();
    m.rounds = static_cast<int>(contender->samples_ms.size());
    ++contender;
    if (!line.checks.empty()) m.parity = check(line);
    if (m.operations == 0) continue;
    if (lines[0].yardstick) m.yardstick_ms = contenders[0].median_ms();
    m.peak_share = m.gflops() / context.peak_gflops;
    m.invalid = !valid;
  }
  return results;
}

}  // namespace patina
