#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "optim/clip.h"

namespace patina {

namespace {

constexpr int kZeroStepsToReport = 3;  // with B = 0 the gradient of A is exactly zero in the first step

// What a profile calls the time between the nodes; the objective adds its own.
constexpr std::string_view kOptimizer = "optimizer", kReports = "reports";

constexpr size_t kEpochsOfMean = 5;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double TrainState::mean_of_last_five() const {
  double sum = 0.0;
  for (const double loss : epoch_losses) sum += loss / static_cast<double>(epoch_losses.size());
  return sum;
}

Trainer::Trainer(std::unique_ptr<Objective> objective, Adapter& adapter, const TrainOptions& options, ThreadPool& pool)
    : objective_(std::move(objective)),
      adapter_(adapter),
      options_(options),
      pool_(pool),
      optimizer_(make_optimizer(adapter.parameters(), options.optimizer)),
      plan_{objective_->memory(), 0, 0, 0, 0, 0, 0, 0} {
  // Shuffling decides how samples fill steps, so epochs may differ by a step: count them all.
  int64_t steps = 0, epochs = 0;
  while (options.steps > 0 ? steps < options.steps : epochs < options.epochs) {
    const int64_t count = std::ssize(objective_->plan_epoch(epochs));
    if (epochs == 0) plan_.steps_per_epoch = count;
    steps += count;
    ++epochs;
  }
  plan_.epochs = epochs;
  plan_.total_steps = options.steps > 0 ? options.steps : steps;
  plan_.warmup_steps = warmup_steps(options.warmup, options.least_warmup_steps, plan_.total_steps);
  plan_.trainable_bytes =
      2 * static_cast<int64_t>(adapter.parameters().values().size_bytes()) + adapter.constant_bytes();
  const OptimizerMemory memory = optimizer_memory(adapter.parameters(), options.optimizer, pool.size());
  plan_.moments_bytes = memory.moments_bytes;
  plan_.optimizer_scratch_bytes = memory.scratch_bytes;
  schedule_.kind = options.schedule;
  schedule_.peak = options.learning_rate;
  schedule_.warmup_steps = plan_.warmup_steps;
  schedule_.total_steps = plan_.total_steps;
  state_.zero_steps.assign(adapter.parameters().slices().size(), 0);
}

void Trainer::set_state(TrainState state) {
  PATINA_CHECK(state.zero_steps.size() == adapter_.parameters().slices().size(), "a state of {} parameters for {}",
               state.zero_steps.size(), adapter_.parameters().slices().size());
  state_ = std::move(state);
}

void Trainer::run_step(const std::vector<size_t>& step, TrainObserver& observer, Profile* profile) {
  const auto start = std::chrono::steady_clock::now();
  ParameterStore& store = adapter_.parameters();
  StepReport report{};
  report.epoch = state_.epoch + 1;
  report.step = ++state_.steps;
  report.total_steps = plan_.total_steps;
  ++state_.step_in_epoch;
  std::fill(store.gradients().begin(), store.gradients().end(), 0.0f);
  lap(profile, kOptimizer);
  StepLoss loss = objective_->run_step(report.step, step, profile);
  if (loss.not_finite.empty()) {
    report.grad_norm = global_norm(store.gradients(), pool_);
    if (!std::isfinite(report.grad_norm)) {
      std::string where = "the norm itself";
      for (const GradientNorm& gradient : gradient_norms())
        if (!std::isfinite(gradient.norm)) where = gradient.parameter;
      loss.not_finite = fmt::format("the gradient of {} is not finite", where);
    }
  }
  if (!loss.not_finite.empty()) {
    observer.on_bad_step({report.step, ++state_.bad_steps, loss.not_finite});
    if (state_.bad_steps < options_.max_bad_steps) return;
    fail(Error::Kind::kNonFinite, "step {} of {}: {}; the step was not applied{}; lower --lr", report.step,
         report.total_steps, loss.not_finite,
         state_.bad_steps > 1 ? fmt::format(", nor the {} before it", state_.bad_steps - 1) : "");
  }
  state_.bad_steps = 0;
  report.loss = loss.weight_sum > 0.0 ? loss.loss_sum / loss.weight_sum : 0.0;
  report.tokens = loss.tokens;
  report.supervised = loss.supervised;
  report.figures = std::move(loss.figures);
  report.clip_scale = clip(store.gradients(), report.grad_norm, options_.grad_clip, pool_);
  report.learning_rate = learning_rate(schedule_, report.step - 1);
  optimizer_->step(store.values(), store.gradients(), report.learning_rate, pool_);
  if (!std::isfinite(global_norm(store.values(), pool_)))
    fail(Error::Kind::kNonFinite, "step {} of {}: the adapter's values are no longer finite; lower --lr", report.step,
         report.total_steps);
  lap(profile, kOptimizer);
  report.ms = milliseconds_since(start);
  report.tokens_per_second = static_cast<double>(report.tokens) / std::max(report.ms, 1e-3) * 1e3;
  state_.loss_sum += loss.loss_sum;
  state_.weight_sum += loss.weight_sum;
  last_ = report;
  observer.on_step(report);
  watch_zero_gradients(observer);
}

std::vector<GradientNorm> Trainer::gradient_norms() {
  ParameterStore& store = adapter_.parameters();
  std::vector<GradientNorm> norms;
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const float* gradient = store.gradient(i);
    double sum = 0.0;
    for (int64_t j = 0; j < store.slices()[i].shape.elements(); ++j)
      sum += static_cast<double>(gradient[j]) * static_cast<double>(gradient[j]);
    norms.push_back({store.slices()[i].name, std::sqrt(sum)});
  }
  return norms;
}

void Trainer::watch_zero_gradients(TrainObserver& observer) {
  ParameterStore& store = adapter_.parameters();
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const ParameterStore::Slice& slice = store.slices()[i];
    const std::span<const float> gradient(store.gradient(i), static_cast<size_t>(slice.shape.elements()));
    // Ends at the first number that is not zero: next to nothing in every step, where norms would take 16 ms.
    const bool zero = std::ranges::all_of(gradient, [](float value) { return value == 0.0f; });
    state_.zero_steps[i] = zero ? state_.zero_steps[i] + 1 : 0;
    if (state_.zero_steps[i] == kZeroStepsToReport)
      observer.on_warning(fmt::format("the gradient of {} was exactly zero for {} steps: it learns nothing", slice.name,
                                      kZeroStepsToReport));
  }
}

void Trainer::finish_epoch(TrainObserver& observer) {
  EpochReport summary{};
  summary.epoch = state_.epoch + 1;
  summary.epochs = plan_.epochs;
  summary.step = state_.steps;
  if (state_.weight_sum > 0.0) {
    summary.loss = state_.loss_sum / state_.weight_sum;
    summary.best = state_.epoch_losses.empty() || summary.loss < state_.best_loss;
    if (summary.best) state_.best_loss = summary.loss;
    state_.epoch_losses.push_back(summary.loss);
    if (state_.epoch_losses.size() > kEpochsOfMean) state_.epoch_losses.erase(state_.epoch_losses.begin());
  } else {  // no step of it was applied
    summary.loss = std::numeric_limits<double>::quiet_NaN();
  }
  summary.mean_of_last_five = state_.mean_of_last_five();
  summary.learning_rate = last_.learning_rate;
  summary.grad_norm = last_.grad_norm;
  summary.ms = state_.epoch_ms;
  summary.eta_ms =
      state_.ms / static_cast<double>(state_.steps) * static_cast<double>(plan_.total_steps - state_.steps);
  ++state_.epoch;
  state_.step_in_epoch = 0;
  state_.loss_sum = 0.0;
  state_.weight_sum = 0.0;
  state_.epoch_ms = 0.0;
  observer.on_epoch(summary);
}

void Trainer::validate(TrainObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  ValidationLoss validation{};
  try {
    validation = objective_->validate();
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kNonFinite) throw;
    fail(Error::Kind::kNonFinite,
         "step {} of {}: the loss of the validation after it is not finite: the adapter has "
         "diverged; lower --lr",
         state_.steps, plan_.total_steps);
  }
  const double loss = validation.loss;
  const bool best = state_.best_step == 0 || loss < state_.best_validation;
  if (best) {
    state_.best_validation = loss;
    state_.best_step = state_.steps;
  }
  state_.stale_validations = best ? 0 : state_.stale_validations + 1;
  observer.on_eval(
      {state_.steps, loss, validation.tokens, best, milliseconds_since(start), std::move(validation.figures)});
}

// Why the run is over where state() stands.
std::optional<TrainResult::Reason> Trainer::ended() const {
  if (options_.patience > 0 && state_.stale_validations >= options_.patience) return TrainResult::Reason::kPatience;
  if (options_.target_loss > 0 && state_.step_in_epoch == 0 && !state_.epoch_losses.empty() &&
      state_.mean_of_last_five() <= options_.target_loss)
    return TrainResult::Reason::kTarget;
  if (state_.steps == plan_.total_steps) return TrainResult::Reason::kCompleted;
  return std::nullopt;
}

TrainResult Trainer::run(TrainObserver& observer, const std::function<bool()>& stop, Profile* profile) {
  objective_->prefault();
  auto last = std::chrono::steady_clock::now();  // the end of the last step: what is told of it counts to the next
  if (profile != nullptr) profile->start();
  bool stopped = false;
  std::vector<std::vector<size_t>> epoch_steps;
  int64_t planned_epoch = -1;
  while (!ended() && !stopped) {
    if (planned_epoch != state_.epoch) {
      planned_epoch = state_.epoch;
      epoch_steps = objective_->plan_epoch(planned_epoch);
    }
    if (state_.step_in_epoch == std::ssize(epoch_steps)) {  // the last step of the epoch had ended the run
      finish_epoch(observer);
      continue;
    }
    run_step(epoch_steps.at(static_cast<size_t>(state_.step_in_epoch)), observer, profile);
    const double ms = milliseconds_since(last);
    last = std::chrono::steady_clock::now();
    state_.ms += ms;
    state_.epoch_ms += ms;
    const bool epoch_ended = state_.step_in_epoch == std::ssize(epoch_steps) || state_.steps == plan_.total_steps;
    if (epoch_ended) finish_epoch(observer);
    if (objective_->validates() &&
        (options_.eval_every > 0 ? state_.steps % options_.eval_every == 0 || state_.steps == plan_.total_steps
                                 : epoch_ended))
      validate(observer);
    observer.between_steps(epoch_ended);
    lap(profile, kReports);
    stopped = stop();
  }
  TrainResult result;
  result.reason = ended().value_or(TrainResult::Reason::kInterrupted);
  result.steps = state_.steps;
  result.epochs = state_.epoch + (state_.step_in_epoch > 0);
  result.final_loss = state_.weight_sum > 0.0       ? state_.loss_sum / state_.weight_sum
                      : state_.epoch_losses.empty() ? 0.0
                                                    : state_.epoch_losses.back();
  result.best_loss = state_.epoch > 0 ? state_.best_loss : result.final_loss;
  result.ms = state_.ms + milliseconds_since(last);
  return result;
}

}  // namespace patina
