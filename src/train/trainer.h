// The training loop: epochs, optimizer steps, micro-batches. It knows no terminal and no files; observers do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "optim/schedule.h"
#include "train/loss_runner.h"

namespace patina {

struct TrainOptions {
  int64_t batch_tokens = 2048;  // tokens of an optimizer step: decides which sequences it holds
  int64_t micro_tokens = 0;     // tokens in memory at once, 0 = auto: changes the result by rounding only
  int64_t epochs = 3;
  int64_t steps = 0;  // > 0: stop after so many optimizer steps instead of after `epochs`
  double learning_rate = 2e-4;
  Schedule schedule = Schedule::kCosine;
  double warmup = 0.05;    // below 1: fraction of all steps, else steps
  double grad_clip = 1.0;  // 0 = off
  uint64_t seed = 42;
  bool stream_weights = false;  // read ahead and release the pages of frozen weights; the result is the same
  AdamWOptions adamw;
  GradientOptions gradients;
};

// What is known before the first step.
struct TrainPlan {
  int64_t steps_per_epoch, total_steps, warmup_steps, epochs;
  int64_t micro_tokens;     // as resolved
  int64_t micro_sequences;  // at most, in one micro-batch
  int64_t weights_bytes;    // of the mapped file; where weights are streamed, of it at one time
  int64_t trainable_bytes;  // values and gradients, and what the adapter keeps beside them
  int64_t moments_bytes;
  int64_t arena_bytes;             // activations saved for backward, and scratch
  int64_t saved_bytes;             // of the arena: kept from forward for backward
  FormulationCounts formulations;  // frozen products whose gradient is computed, by formulation
};

struct StepReport {
  int64_t epoch, step, total_steps;  // from 1
  double loss;                       // mean over the supervised tokens of the step, nats
  double learning_rate, grad_norm, clip_scale;
  int64_t tokens, supervised;
  double ms, tokens_per_second;
};

struct EpochReport {
  int64_t epoch, epochs, step;  // from 1
  double loss;                  // mean over the supervised tokens of the epoch
  double mean_of_last_five;     // over the losses of the last five epochs
  double learning_rate, grad_norm;
  double ms, eta_ms;
  bool best;
};

// The 2-norm of one parameter's gradient in the last step.
struct GradientNorm {
  std::string parameter;  // "layers.3.q.lora_B"
  double norm;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_epoch(const EpochReport&) {}
  virtual void on_warning(const std::string&) {}
};

struct TrainResult {
  enum class Reason : uint8_t { kCompleted, kInterrupted };
  int64_t steps = 0, epochs = 0;
  double final_loss = 0.0, best_loss = 0.0;
  Reason reason = Reason::kCompleted;
  double ms = 0.0;
};

int64_t longest_sequence(std::span<const Sequence> sequences);  // in tokens, at least 1
// Tokens of the largest micro-batch: as asked for or 512, at least the longest sequence.
int64_t resolve_micro_tokens(const TrainOptions& options, std::span<const Sequence> sequences);

class Trainer {
 public:
  // Plans the run; run() takes the memory that activations need. `sequences` must outlive the trainer.
  Trainer(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences, const TrainOptions& options,
          const Backend& backend, ThreadPool& pool);

  const TrainPlan& plan() const { return plan_; }
  const Graph& graph() const { return runner_.graph(); }
  // The symbols of its graph for so many tokens, sequences and supervised rows.
  std::vector<int64_t> sizes(int64_t tokens, int64_t sequences, int64_t rows) const {
    return runner_.sizes(tokens, sequences, rows);
  }

  // Trains. `stop` is asked after every step; true ends the run there. Error(kNonFinite) naming step and op where a
  // loss or gradient is not finite: that step is not applied. `profile`, where given, gets all the time of the steps.
  TrainResult run(TrainObserver& observer, const std::function<bool()>& stop, Profile* profile = nullptr);

  // Gradient norms of every parameter in the last step, after clipping.
  std::vector<GradientNorm> gradient_norms();

 private:
  double run_step(const std::vector<size_t>& step, StepReport* report, Profile* profile);
  void watch_zero_gradients(TrainObserver& observer);

  Adapter& adapter_;
  std::span<const Sequence> sequences_;
  TrainOptions options_;
  ThreadPool& pool_;
  LossLimits limits_;
  LossRunner runner_;
  AdamW optimizer_;
  TrainPlan plan_{};
  ScheduleOptions schedule_;
  MicroBatch batch_;
  std::vector<int> zero_steps_;  // per parameter: steps in a row whose gradient was exactly zero
};

}  // namespace patina
