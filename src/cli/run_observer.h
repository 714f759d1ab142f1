// Shows a run to people and programs, has its checkpoints written, and keeps what train_log.json needs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/events.h"
#include "cli/progress.h"
#include "cli/run_saver.h"

namespace patina {

// What what is trained answers to a prompt, beside what the base model does.
struct SampleAnswer {
  std::string prompt, text, base;
};
// When samples are taken: before the first step, at the end, and every so many steps (0: not) in between.
struct SampleRule {
  int64_t every = 0;
  std::function<std::vector<SampleAnswer>()> take = {};  // empty: never
};

// When the adapter is exported in between: each time the loss of an epoch has fallen by so much (0: never).
struct MilestoneRule {
  double step;
  std::function<std::filesystem::path(const std::string& name)> write;  // Error(kIo) where it cannot
};

class RunObserver final : public TrainObserver {
 public:
  RunObserver(Trainer& trainer, const ParameterStore& store, const SampleRule& samples, MilestoneRule milestones,
              EventWriter& events)
      : trainer_(trainer), store_(store), samples_(samples), milestones_(std::move(milestones)), events_(events) {}
  void save_with(RunSaver& saver) { saver_ = &saver; }

  void on_step(const StepReport& step) override;
  void on_bad_step(const BadStepReport& step) override;
  void on_epoch(const EpochReport& epoch) override;
  void on_eval(const EvalReport& eval) override;
  void on_warning(const std::string& message) override { warn(message, 1); }
  void between_steps(bool epoch_ended) override;

  // Before the first step and after the last: samples, where there are none of this step.
  void take_samples();
  void warn(const std::string& message, int64_t count);

  // What was told so far, and back to where a checkpoint stood: {epochs, evals, samples, milestones, warnings}.
  const Json& told() const { return told_; }
  void set_told(const Json& told) { told_.update(told); }

 private:
  void note_milestone(const EpochReport& epoch);

  Trainer& trainer_;
  const ParameterStore& store_;
  const SampleRule& samples_;
  const MilestoneRule milestones_;
  EventWriter& events_;
  Progress progress_;
  RunSaver* saver_ = nullptr;
  double clip_scale_ = 1.0;
  Json told_ = {{"epochs", Json::array()},
                {"evals", Json::array()},
                {"samples", Json::array()},
                {"milestones", Json::array()},
                {"warnings", Json::array()}};
};

}  // namespace patina
