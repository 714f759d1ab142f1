// Runs the loss graph of a model over micro-batches: the piece that training and evaluation share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "adapter/prelude.h"
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

  // From now on frozen weights are streamed, about two layers of them in memory at a time (graph/stream.h).
  void stream_weights(const DecoderModel& model, const Adapter& adapter);
  // Before the first run, and whenever the adapter's parameters have changed. `step` says which numbers dropout draws.
  void begin_step(int64_t step);

  // Of streamed weights, resident at one time.
  int64_t window_bytes() const { return (stream_ ? stream_->plan().most_resident_bytes : 0) + prelude_.window_bytes(); }

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
  int64_t arena_bytes() const { return plan().arena_bytes + prelude_.arena_bytes(); }
  // The symbols of a run over so many tokens, sequences and supervised rows.
  std::vector<int64_t> sizes(int64_t tokens, int64_t sequences, int64_t rows) const {
    return graph_->sizes(tokens, sequences, rows);
  }
  const FormulationCounts& formulations() const { return graph_->gradients.formulations; }

 private:
  std::vector<int64_t> bind(const MicroBatch& batch, float gradient_scale);

  std::unique_ptr<LossGraph> graph_;
  std::unique_ptr<WeightStream> stream_;
  std::unique_ptr<Executor> executor_;
  Prelude prelude_;
  float seed_ = 0.0f;
  int32_t step_ = 0;
};

// Of the model's file in memory at one time, where the weights of a loss graph and of its adapter are streamed.
int64_t streamed_weight_bytes(const DecoderModel& model, const Graph& loss, const Adapter& adapter);

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
