// The training loop: epochs, optimizer steps, when a run ends. What a step computes is its objective's
// (train/objective.h). It knows no terminal and no files; observers do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "graph/recompute.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/objective.h"

namespace patina {

struct TrainOptions {
  int64_t epochs = 3;
  int64_t steps = 0;  // > 0: stop after so many optimizer steps instead of after `epochs`
  double learning_rate = 2e-4;
  Schedule schedule = Schedule::kCosine;
  double warmup = 0.05;            // below 1: fraction of all steps, else steps
  int64_t least_warmup_steps = 0;  // > 0: of a fraction (optim/schedule.h)
  double grad_clip = 1.0;          // 0 = off
  uint64_t seed = 42;
  bool stream_weights = false;  // read ahead and release the pages of frozen weights; the result is the same
  int64_t max_bad_steps = 3;    // in a row, whose loss or gradient is not finite, until the run ends
  int64_t eval_every = 0;       // steps between two validations, 0 = after each epoch
  int64_t patience = 0;         // > 0: end after so many validations in a row without a new best
  double target_loss = 0.0;     // > 0: end where the mean loss of the last five epochs is at most this
  OptimizerOptions optimizer;
  GradientOptions gradients;
};

// What is known before the first step.
struct TrainPlan : ObjectiveMemory {
  int64_t steps_per_epoch, total_steps, warmup_steps, epochs;
  int64_t trainable_bytes;  // values and gradients, and what the adapter keeps beside them
  int64_t moments_bytes;    // of the optimizer, as the next
  int64_t optimizer_scratch_bytes;
};

struct StepReport {
  int64_t epoch, step, total_steps;  // from 1
  double loss;                       // mean over the supervised tokens of the step, weighted, nats
  double learning_rate, grad_norm, clip_scale;
  int64_t tokens, supervised;
  double ms, tokens_per_second;
  std::vector<Figure> figures;  // what the objective tells beside
};

// After a step whose loss or gradient was not finite: it was not applied.
struct BadStepReport {
  int64_t step, in_a_row;
  std::string what;  // "the loss is nan (first value that is not finite: swiglu at layers.3.ffn)"
};

struct EvalReport {
  int64_t step;
  double loss;  // mean over the validation set
  int64_t tokens;
  bool best;
  double ms;
  std::vector<Figure> figures;  // what the objective tells beside
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

// Where a run stands between two steps. With the parameters and the optimizer's state this is all that it takes to go
// on as if it had never stopped: random streams are indexed and have no state.
struct TrainState {
  int64_t steps = 0;                        // done, with those that were not applied
  int64_t epoch = 0, step_in_epoch = 0;     // of the next step, from 0
  double loss_sum = 0.0, weight_sum = 0.0;  // of the epoch so far: weighted losses of its labels, and the weights
  double epoch_ms = 0.0, ms = 0.0;          // of the epoch so far, of the run
  std::vector<double> epoch_losses;         // the last five
  double best_loss = 0.0;                   // of an epoch
  int64_t bad_steps = 0;                    // in a row
  std::vector<int64_t> zero_steps;          // per parameter: steps in a row whose gradient was exactly zero
  double best_validation = 0.0;
  int64_t best_step = 0;          // of best_validation; 0 before the first validation
  int64_t stale_validations = 0;  // since the best one

  double mean_of_last_five() const;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_bad_step(const BadStepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  // After a step and all that is told of it: the moment at which state() is complete and may be saved.
  virtual void between_steps(bool /*epoch_ended*/) {}
  virtual void on_epoch(const EpochReport&) {}
  virtual void on_warning(const std::string&) {}
};

struct TrainResult {
  enum class Reason : uint8_t { kCompleted, kTarget, kPatience, kInterrupted };
  int64_t steps = 0, epochs = 0;
  double final_loss = 0.0, best_loss = 0.0;
  Reason reason = Reason::kCompleted;
  double ms = 0.0;
};

class Trainer {
 public:
  // Plans the run; run() takes the memory that activations need.
  Trainer(std::unique_ptr<Objective> objective, Adapter& adapter, const TrainOptions& options, ThreadPool& pool);

  const TrainPlan& plan() const { return plan_; }
  const Objective& objective() const { return *objective_; }

  // Trains from where state() stands to the end. `stop` is asked after every step; true ends the run there.
  // A step whose loss or gradient is not finite is not applied; Error(kNonFinite) naming step and op after
  // max_bad_steps of them in a row, with state() as it is after the last of them. `profile`, where given, gets all the
  // time of the steps.
  TrainResult run(TrainObserver& observer, const std::function<bool()>& stop, Profile* profile = nullptr);

  const TrainState& state() const { return state_; }
  Optimizer& optimizer() { return *optimizer_; }
  // Goes on from a state of the same run, whose parameters and optimizer's state are in place already.
  void set_state(TrainState state);

  // Gradient norms of every parameter in the last step, after clipping.
  std::vector<GradientNorm> gradient_norms();

 private:
  void run_step(const std::vector<size_t>& step, TrainObserver& observer, Profile* profile);
  void finish_epoch(TrainObserver& observer);
  void validate(TrainObserver& observer);
  std::optional<TrainResult::Reason> ended() const;
  void watch_zero_gradients(TrainObserver& observer);

  std::unique_ptr<Objective> objective_;
  Adapter& adapter_;
  TrainOptions options_;
  ThreadPool& pool_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainPlan plan_{};
  ScheduleOptions schedule_;
  TrainState state_;
  StepReport last_{};  // the last step that was applied
};

}  // namespace patina
