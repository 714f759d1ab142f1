// Runs a planned graph: no allocation and no graph building in a run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/function_ref.h"
#include "graph/plan.h"
#include "graph/stream.h"
#include "ir/graph.h"

namespace patina {

class Executor {
 public:
  // Plans and reserves addresses; memory is taken where it is first written, or by prefault(). The graph must outlive
  // the executor and not grow.
  Executor(const Graph& graph, const Backend& backend, ThreadPool& pool);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Takes the memory of the whole plan now, on all threads, so that it is what the plan says and no page fault falls
  // into a run. Before the first run: values are lost.
  void prefault();

  // Binds an external value (inputs before each run; others once).
  void bind(ValueId id, void* data);

  // From now on `stream`, made for this graph, is told how far a run is; it must outlive the executor.
  void set_stream(WeightStream* stream) { stream_ = stream; }

  // Runs all nodes. sizes[s] is the size of symbol s in this run, at most its maximum. `observe`, where given, is
  // called after each node.
  struct Finished {
    const Node& node;
    std::span<const Tensor> inputs, outputs;
  };
  void run(std::span<const int64_t> sizes);
  void run(std::span<const int64_t> sizes, FunctionRef<void(const Finished&)> observe);

  // A value of the last run (a graph output, an external value).
  Tensor tensor(ValueId id) const;
  const Plan& plan() const { return plan_; }

 private:
  struct Step {
    const Node* node;
    int index;  // of the node
    Kernel run;
    std::span<std::byte> scratch;
    size_t first, inputs, outputs;  // range in arguments_: inputs, then outputs
  };
  void resolve(std::span<const int64_t> sizes);
  Tensor tensor_at(ValueId id) const;

  const Graph& graph_;
  ThreadPool& pool_;
  WeightStream* stream_ = nullptr;
  Plan plan_;
  std::byte* arena_ = nullptr;
  std::vector<void*> data_;    // per value: start of its numbers, null while unbound
  std::vector<Shape> shapes_;  // per value: shape in this run
  std::vector<Tensor> arguments_;
  std::vector<ValueId> argument_values_;  // which value each argument is
  std::vector<Step> steps_;
};

}  // namespace patina
