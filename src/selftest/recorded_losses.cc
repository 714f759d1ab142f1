#include "selftest/recorded_losses.h"

namespace patina {

std::vector<double> recorded_losses(Trainer trainer, FunctionRef<void(int64_t)> after_step) {
  struct Recorder final : TrainObserver {
    explicit Recorder(FunctionRef<void(int64_t)> hook) : after_step(hook) {}
    void on_step(const StepReport& step) override { losses.push_back(step.loss); }
    void between_steps(bool) override { after_step(std::ssize(losses)); }
    FunctionRef<void(int64_t)> after_step;
    std::vector<double> losses;
  } recorder(after_step);
  trainer.run(recorder, [] { return false; });
  return recorder.losses;
}

}  // namespace patina
