// One line of a benchmark's table, and how lines that are compared with each other are measured.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/executor.h"
#include "measure/parity.h"
#include "measure/yardstick.h"

namespace patina {

struct Measurement {
  enum class Kind : uint8_t { kForward, kBackward, kCopy, kLayer };

  std::string sites;
  int count = 1;                // sites of this size in a layer
  int64_t k = 0, n = 0, t = 0;  // k and n 0: a whole layer
  std::string type;             // of the weight
  Kind kind = Kind::kForward;
  std::string formulation;  // fused, mm, outprod; sgemm; of copies: transposed, f32, dense
  double operations = 0;    // floating point operations of a call; 0 for copies
  int64_t bytes = 0;        // each operand, result and intermediate once for every time it is read or written whole
  std::string note;         // why it was not measured

  double ms = 0;            // median of a call; 0: not measured
  int rounds = 0;           // that the median is of
  double yardstick_ms = 0;  // of the same work in the same rounds; 0: none
  double peak_share = 0;    // of the machine's multiply-add peak
  std::optional<Parity> parity;
  bool invalid = false;  // the yardstick did not run between the others as it runs alone (measure_rounds)

  bool measured() const { return ms > 0; }
  double gflops() const { return measured() ? operations / ms * 1e-6 : 0; }
  double ratio() const { return measured() ? yardstick_ms / ms : 0; }  // speed in units of the yardstick's
};
std::string_view name(Measurement::Kind kind);
inline constexpr const char* kSgemm = "sgemm";

struct MeasureContext {
  const Backend& backend;
  ThreadPool& pool;
  const Yardstick* yardstick;  // null: no ratios
  double peak_gflops;          // of multiply_add_peak()
  int reps;
};

// A line before it is measured.
struct Line {
  Measurement measurement;
  std::function<void(int64_t tokens)> run;  // empty: `measurement.note` says why not
  bool yardstick = false, slow = false;     // see Contender
  std::shared_ptr<void> owner;              // of what `run` uses
  std::vector<std::pair<Tensor, const ExactProduct*>>
      checks;  // results of a run at all tokens, and what they should be
};

// A line that runs `graph`, which has no symbol but the number of tokens, with bound inputs. Reading `outputs` of the
// graph against `exact` (none, or one for each) is its check.
Line graph_line(const MeasureContext& context, Measurement measurement, std::unique_ptr<Graph> graph,
                const std::vector<std::pair<ValueId, void*>>& inputs, const std::vector<const ExactProduct*>& exact);

// Measures the lines in common rounds; the yardstick's comes first, where there is one.
std::vector<Measurement> measure_lines(const MeasureContext& context, const std::vector<Line>& lines);

}  // namespace patina
