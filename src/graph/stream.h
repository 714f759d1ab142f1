// Streaming of frozen weights: their pages are read ahead of the nodes that use them and released after use, so that a
// model larger than memory runs. Which pages, and when, is known before the first run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/threads.h"
#include "ir/graph.h"

namespace patina {

// A run is a row of positions: one for each node that uses weights of the file; several for a node that goes through
// its weight from the first row to the last and tells how far it is. The window of a position, which is what should be
// resident then, is what it uses itself, and as much of what the next positions use as fits into the budget. The last
// position is followed by the first, for there is a next micro-batch. Lookups of single rows are not read ahead; what
// they bring in is released like all else.
struct StreamPlan {
  struct Ask {
    int piece;
    int64_t positions;  // after so many more positions it is released
  };
  struct Position {
    int node;
    int64_t rows;              // it is passed when the node is done with so many rows of its weight, or altogether
    std::vector<int> release;  // when it is passed
    std::vector<Ask> ask;      // then
    std::vector<int> lookups;  // released after every few lookups of single rows
  };
  static constexpr int64_t kNever = INT64_MAX;

  // Of the tensors, in whole pages, each within one of the cells of 2 MiB that a file consists of; a page that two
  // tensors share belongs to the first.
  std::vector<std::span<const std::byte>> pieces;
  std::vector<Position> positions;
  std::vector<Ask> first;           // asked before the first position of the first run
  std::vector<int> passed;          // per node: positions that are passed when it is done
  int64_t streamed_bytes = 0;       // of all pieces
  int64_t most_resident_bytes = 0;  // of the largest window, with what lookups of single rows bring in
};

// For the frozen values of `graph` that lie in `files`, page-aligned maps. The budget is exceeded where a single node's
// weights are larger.
StreamPlan plan_stream(const Graph& graph, std::span<const std::span<const std::byte>> files, int64_t budget_bytes);

// Carries a plan out while an executor runs the graph. Reading and releasing are a background thread's work; where it
// is late, the pages are read when they are used, as those of any mapped file. Nothing depends on it but time and
// resident memory. No call allocates.
class WeightStream final : public WeightProgress {
 public:
  explicit WeightStream(StreamPlan plan);

  void begin();           // a run begins, with node 0
  void passed(int node);  // a node is done
  // Of the node after the one that was done last.
  void rows_done(int64_t rows) override;
  void looked_up() override;
  const StreamPlan& plan() const { return plan_; }

 private:
  bool work();
  void advance(int64_t position);

  const StreamPlan plan_;
  int64_t run_start_ = 0;  // positions passed in all earlier runs
  bool started_ = false;
  std::atomic<int64_t> passed_{0};  // positions passed in all runs
  // Of the thread alone. Event e > 0 is the passing of position e - 1, event 0 the start; positions go round.
  int64_t released_ = 0, asked_ = 0;        // events whose releases, and whose asks, are done
  size_t next_ask_ = 0;                     // of event asked_
  std::optional<BackgroundThread> reader_;  // last: it works on the others
};

}  // namespace patina
