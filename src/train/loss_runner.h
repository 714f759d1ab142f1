// Runs the loss graph of a model over micro-batches: the piece that training and evaluation share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "data/sampler.h"
#include "graph/executor.h"
#include "graph/profile.h"
#include "model/decoder_lm.h"

namespace patina {

class LossRunner {
 public:
  LossRunner(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
             const std::optional<GradientOptions>& gradients, const Backend& backend, ThreadPool& pool);

  // Sum of cross-entropy over the supervised tokens of a micro-batch, in nats. With gradient, adds gradient_scale * d
  // loss to the adapter's gradients. A micro-batch without supervised tokens costs nothing and gives 0.
  // `profile`, where given, gets a lap for each node.
  double run(const MicroBatch& batch, float gradient_scale, Profile* profile = nullptr);

  // Runs a micro-batch again and says which op's output is the first that is not finite: "swiglu at layers.3.ffn";
  // empty where all are finite.
  std::string find_non_finite(const MicroBatch& batch, float gradient_scale);

  void prefault() { executor_->prefault(); }
  const Graph& graph() const { return graph_->graph; }
  const Plan& plan() const { return executor_->plan(); }
  const FormulationCounts& formulations() const { return graph_->gradients.formulations; }

 private:
  std::vector<int64_t> bind(const MicroBatch& batch, float gradient_scale);

  std::unique_ptr<LossGraph> graph_;
  std::unique_ptr<Executor> executor_;
  float seed_ = 0.0f;
};

// Largest micro-batch, and longest sequence, that `steps` need: the limits of the graph.
LossLimits loss_limits(std::span<const Sequence> sequences, int64_t micro_tokens);

struct Evaluation {
  double loss_sum = 0.0;  // nats
  int64_t supervised_tokens = 0, tokens = 0;
  double mean_loss() const { return supervised_tokens > 0 ? loss_sum / static_cast<double>(supervised_tokens) : 0.0; }
};

// Mean loss of a data set, in its own order. Error(kNonFinite) naming the op where a loss is not finite.
Evaluation evaluate(LossRunner& runner, std::span<const Sequence> sequences, int64_t micro_tokens);
Evaluation evaluate(const DecoderModel& model, Adapter* adapter, std::span<const Sequence> sequences,
                    int64_t micro_tokens, const Backend& backend, ThreadPool& pool);

}  // namespace patina
