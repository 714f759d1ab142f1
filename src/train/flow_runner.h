// Runs the flow graph of a diffusion transformer over batches of songs: the piece that training and evaluation share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "adapter/prelude.h"
#include "backend/backend.h"
#include "graph/executor.h"
#include "graph/profile.h"
#include "model/dit.h"
#include "train/flow_matching.h"

namespace patina {

class FlowRunner {
 public:
  FlowRunner(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
             const std::optional<GradientOptions>& gradients, const Backend& backend, ThreadPool& pool);

  // From now on frozen weights are streamed, about two layers of them in memory at a time (graph/stream.h).
  void stream_weights(const DitModel& model, const Adapter& adapter);
  // Before the first run, and whenever the adapter's parameters have changed. `step` says which numbers dropout draws.
  void begin_step(int64_t step);
  int64_t window_bytes() const { return (stream_ ? stream_->plan().most_resident_bytes : 0) + prelude_.window_bytes(); }

  // Sum of weight * squared error over the batch; losses() then has it by patch. With gradient, adds gradient_scale * d
  // sum to the adapter's gradients. `profile`, where given, gets a lap for each node.
  double run(const FlowBatch& batch, float gradient_scale, Profile* profile = nullptr);
  std::span<const float> losses() const;
  // [T, latents * P] of the last run; of a runner without gradients.
  Tensor velocity() const { return executor_->tensor(flow_->velocity); }
  std::string find_non_finite(const FlowBatch& batch, float gradient_scale);

  void prefault() { executor_->prefault(); }
  const Graph& graph() const { return flow_->graph; }
  const Plan& plan() const { return executor_->plan(); }
  int64_t arena_bytes() const { return plan().arena_bytes + prelude_.arena_bytes(); }
  const FormulationCounts& formulations() const { return flow_->gradients.formulations; }

 private:
  std::vector<int64_t> bind(const FlowBatch& batch, float gradient_scale);

  std::unique_ptr<FlowGraph> flow_;
  std::unique_ptr<WeightStream> stream_;
  std::unique_ptr<Executor> executor_;
  Prelude prelude_;
  float seed_ = 0.0f;
  int32_t step_ = 0;
};

// Of the model's files in memory at one time, where the weights of a flow graph and of its adapter are streamed.
int64_t streamed_weight_bytes(const DitModel& model, const Graph& flow, const Adapter& adapter);

}  // namespace patina
