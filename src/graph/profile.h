// Where the time of a run goes, op by op.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/executor.h"
#include "ops/work.h"

namespace patina {

enum class Phase : uint8_t {
  kOutside,   // of the graph: filling of inputs, the optimizer
  kForward,   // up to the first output, the loss
  kBackward,  // after it
  kRepeated,  // forward work done again in backward (graph/recompute.h)
};
inline constexpr std::array<std::string_view, 4> kPhaseNames = {"", "forward", "backward", "repeated"};
inline std::string_view name(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

// Per node of a graph whose first output is the loss.
std::vector<Phase> phases(const Graph& graph);

// Operations of one run of the graph at these sizes, which may exceed the maxima (operations are linear in each, so the
// totals of many runs give their sum); `pairs` of an attention node as in visible_pairs().
double run_operations(const Graph& graph, std::span<const int64_t> sizes, FunctionRef<double(const Node&)> pairs,
                      bool with_repeated);

// Counts time in laps: each lasts from the end of the one before it, so all of them together are all the time.
class Profile {
 public:
  explicit Profile(const Graph& graph) : graph_(graph), phases_(phases(graph)) {}

  void start();                                  // the first lap begins
  void lap(std::string_view what);               // outside the graph; `what` is a literal
  void lap(const Executor::Finished& finished);  // a node

  struct Row {
    std::string_view op;
    Phase phase = Phase::kOutside;
    int64_t calls = 0;
    double ms = 0;
    Work work;
    double gflops() const { return ms > 0 ? work.operations / ms * 1e-6 : 0; }
    double gigabytes_per_second() const { return ms > 0 ? work.bytes / ms * 1e-6 : 0; }
  };
  std::vector<Row> rows() const;  // the longest first
  double ms() const;              // all laps

 private:
  Row& end_lap(std::string_view op, Phase phase);

  const Graph& graph_;
  const std::vector<Phase> phases_;
  std::map<std::pair<std::string_view, Phase>, Row> rows_;
  std::chrono::steady_clock::time_point lap_start_;
};

// A lap where a profile is taken at all.
inline void lap(Profile* profile, std::string_view what) {
  if (profile != nullptr) profile->lap(what);
}

}  // namespace patina
