#include "cli/run_observer.h"

#include <cmath>
#include <map>

#include "cli/train_events.h"

namespace patina {

namespace {

constexpr size_t kEpochsWithNorms = 8;  // the rest would make logs and checkpoints grow without end

// "q" of "layers.3.q.lora_a".
std::string site_of(const std::string& parameter) {
  const size_t end = parameter.rfind('.'), begin = parameter.rfind('.', end - 1);
  return parameter.substr(begin + 1, end - begin - 1);
}

}  // namespace

void RunObserver::on_step(const StepReport& step) {
  clip_scale_ = step.clip_scale;
  progress_.on_step(step);
  events_.write("step", step_event(step));
}

void RunObserver::on_bad_step(const BadStepReport& step) {
  warn(fmt::format("step {} was not applied: {}", step.step, step.what), step.in_a_row);
}

void RunObserver::on_epoch(const EpochReport& epoch) {
  progress_.on_epoch(epoch);
  Json event = epoch_event(epoch), norms = Json::object();  // before clipping
  std::map<std::string, double> squares;
  for (const GradientNorm& gradient : trainer_.gradient_norms()) {
    const double norm = gradient.norm / clip_scale_;
    norms[gradient.parameter] = norm;
    squares[site_of(gradient.parameter)] += norm * norm;
  }
  for (const auto& [site, sum] : squares) event["siteGradNorms"][site] = std::sqrt(sum);
  events_.write("epoch", event);
  event["gradNorms"] = norms;
  Json& epochs = told_["epochs"];
  epochs.push_back(event);
  if (epochs.size() > kEpochsWithNorms) epochs[epochs.size() - 1 - kEpochsWithNorms].erase("gradNorms");
}

void RunObserver::on_eval(const EvalReport& eval) {
  progress_.print_line(
      fmt::format("step {}  validation loss {:.4f}{}", eval.step, eval.loss, eval.best ? " (best)" : ""));
  const Json event = eval_event(eval);
  events_.write("eval", event);
  told_["evals"].push_back(event);
}

void RunObserver::between_steps(bool epoch_ended) {
  if (saver_ != nullptr) saver_->after_step(trainer_, store_, epoch_ended, events_);
}

void RunObserver::warn(const std::string& message, int64_t count) {
  progress_.print_line("warning: " + message);
  events_.write("warning", {{"message", message}, {"count", count}});
  told_["warnings"].push_back(message);
}

}  // namespace patina
