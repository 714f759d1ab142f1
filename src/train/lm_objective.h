// Training a language model: the cross-entropy of sequences with a supervision mask.
#pragma once

#include "train/loss_runner.h"
#include "train/trainer.h"

namespace patina {

struct LmTrainOptions : TrainOptions {
  int64_t batch_tokens = 2048;  // tokens of an optimizer step: decides which sequences it holds
  int64_t micro_tokens = 0;     // tokens in memory at once, 0 = auto: changes the result by rounding only
};

int64_t longest_sequence(std::span<const Sequence> sequences);  // in tokens, at least 1
// Tokens of the largest micro-batch: as asked for or 512, at least the longest sequence.
int64_t resolve_micro_tokens(const LmTrainOptions& options, std::span<const Sequence> sequences);

class LmObjective final : public Objective {
 public:
  // `sequences`, and those to validate on (which may be none), must outlive it.
  LmObjective(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
              std::span<const Sequence> validation, const LmTrainOptions& options, const Backend& backend,
              ThreadPool& pool);

  std::vector<std::vector<size_t>> plan_epoch(int64_t epoch) const override;
  void prefault() override { runner_.prefault(); }
  StepLoss run_step(int64_t step, std::span<const size_t> samples, Profile* profile) override;
  bool validates() const override { return validation_runner_ != nullptr; }
  ValidationLoss validate() override;

  ObjectiveMemory memory() const override { return memory_; }
  const FormulationCounts& formulations() const override { return runner_.formulations(); }
  double epoch_operations() const override;
  const Graph& graph() const override { return runner_.graph(); }

 private:
  std::span<const Sequence> sequences_, validation_;
  int64_t batch_tokens_, micro_tokens_;
  uint64_t seed_;
  LossRunner runner_;
  std::unique_ptr<LossRunner> validation_runner_;  // null without a validation set
  ObjectiveMemory memory_{};
  MicroBatch batch_;
};

Trainer lm_trainer(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                   std::span<const Sequence> validation, const LmTrainOptions& options, const Backend& backend,
                   ThreadPool& pool);

}  // namespace patina
