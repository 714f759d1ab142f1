// Shows a run to people and programs, has its checkpoints written, and keeps what train_log.json needs.
#pragma once

#include <string>

#include "cli/events.h"
#include "cli/progress.h"
#include "cli/run_saver.h"

namespace patina {

class RunObserver final : public TrainObserver {
 public:
  RunObserver(Trainer& trainer, const ParameterStore& store, EventWriter& events)
      : trainer_(trainer), store_(store), events_(events) {}
  void save_with(RunSaver& saver) { saver_ = &saver; }

  void on_step(const StepReport& step) override;
  void on_bad_step(const BadStepReport& step) override;
  void on_epoch(const EpochReport& epoch) override;
  void on_eval(const EvalReport& eval) override;
  void on_warning(const std::string& message) override { warn(message, 1); }
  void between_steps(bool epoch_ended) override;

  void warn(const std::string& message, int64_t count);

  // What was told so far, and back to where a checkpoint stood: {epochs, evals, warnings}.
  const Json& told() const { return told_; }
  void set_told(Json told) { told_ = std::move(told); }

 private:
  Trainer& trainer_;
  const ParameterStore& store_;
  EventWriter& events_;
  Progress progress_;
  RunSaver* saver_ = nullptr;
  double clip_scale_ = 1.0;
  Json told_ = {{"epochs", Json::array()}, {"evals", Json::array()}, {"warnings", Json::array()}};
};

}  // namespace patina
