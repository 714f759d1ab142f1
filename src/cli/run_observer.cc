#include "cli/run_observer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/spelling.h"
#include "cli/train_events.h"

namespace patina {

namespace {

constexpr size_t kEpochsWithNorms = 8;  // the rest would make logs and checkpoints grow without end

// "cross.q" of "layers.3.cross.q.lora_a", "lm_head" of "lm_head.lora_a".
std::string site_of(const std::string& parameter) {
  constexpr std::string_view kLayers = "layers.";
  const size_t begin = parameter.starts_with(kLayers) ? parameter.find('.', kLayers.size()) + 1 : 0;
  return parameter.substr(begin, parameter.rfind('.') - begin);
}

// Without what would move a terminal's cursor.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  return text;
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
  note_milestone(epoch);
}

void RunObserver::note_milestone(const EpochReport& epoch) {
  if (milestones_.step <= 0.0 || !std::isfinite(epoch.loss)) return;
  Json& told = told_["milestones"];
  const Json& last = (told.empty() ? told_["epochs"].front() : told.back()).at("loss");
  if (last.is_number() && epoch.loss > last.get<double>() - milestones_.step) return;
  try {
    const std::string path =
        milestones_.write(fmt::format("epoch-{:04}-loss-{:.3f}", epoch.epoch, epoch.loss)).string();
    progress_.print_line(fmt::format("milestone  loss {:.4f}: {}", epoch.loss, path));
    told.push_back({{"loss", epoch.loss}, {"epoch", epoch.epoch}, {"step", epoch.step}, {"path", path}});
    events_.write("milestone", told.back());
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kIo) throw;
    warn(fmt::format("no milestone after epoch {}: {}", epoch.epoch, error.what()), 1);
  }
}

void RunObserver::on_eval(const EvalReport& eval) {
  progress_.print_line(
      fmt::format("step {}  validation loss {:.4f}{}", eval.step, eval.loss, eval.best ? " (best)" : ""));
  const Json event = eval_event(eval);
  events_.write("eval", event);
  told_["evals"].push_back(event);
}

void RunObserver::between_steps(bool epoch_ended) {
  if (samples_.every > 0 && trainer_.state().steps % samples_.every == 0) take_samples();
  if (saver_ != nullptr) saver_->after_step(trainer_, store_, epoch_ended, events_);
}

void RunObserver::take_samples() {
  const int64_t step = trainer_.state().steps;
  Json& told = told_["samples"];
  if (!samples_.take || (!told.empty() && told.back().at("step") == step)) return;
  std::vector<SampleAnswer> taken;
  try {
    taken = samples_.take();
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kNonFinite) throw;
    warn(fmt::format("no samples after step {}: the adapter has diverged", step), 1);
    return;
  }
  // Those of the first time and of the last: more would make logs and checkpoints grow without end.
  if (!told.empty()) {
    const Json first = told.front().at("step");
    std::erase_if(told.get_ref<Json::array_t&>(), [&](const Json& sample) { return sample.at("step") != first; });
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    const SampleAnswer& sample = taken[i];
    progress_.print_line(fmt::format("sample {} after step {}: {}\n  base     {}\n  adapter  {}", i + 1, step,
                                     one_line(sample.prompt), one_line(sample.base), one_line(sample.text)));
    told.push_back(
        {{"step", step}, {"number", i + 1}, {"prompt", sample.prompt}, {"text", sample.text}, {"base", sample.base}});
    events_.write("sample", told.back());
  }
}

void RunObserver::warn(const std::string& message, int64_t count) {
  const std::string text = spelled(message);
  progress_.print_line("warning: " + text);
  events_.write("warning", {{"message", text}, {"count", count}});
  told_["warnings"].push_back(text);
}

}  // namespace patina
