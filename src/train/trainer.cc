#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "optim/clip.h"

namespace patina {

namespace {

constexpr int64_t kAutoMicroTokens = 512;  // products are at full speed from here on; more only takes memory
constexpr int kZeroStepsToReport = 3;      // with B = 0 the gradient of A is exactly zero in the first step

// What a profile calls the time between the nodes.
constexpr std::string_view kData = "data", kOptimizer = "optimizer", kReports = "reports", kPrelude = "prelude";

void lap(Profile* profile, std::string_view what) {
  if (profile != nullptr) profile->lap(what);
}

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

int64_t longest_sequence(std::span<const Sequence> sequences) {
  int64_t tokens = 1;
  for (const Sequence& sequence : sequences) tokens = std::max(tokens, static_cast<int64_t>(sequence.ids.size()));
  return tokens;
}

int64_t resolve_micro_tokens(const TrainOptions& options, std::span<const Sequence> sequences) {
  const int64_t wanted = options.micro_tokens > 0 ? options.micro_tokens : kAutoMicroTokens;
  return std::max(longest_sequence(sequences), std::min(wanted, options.batch_tokens));
}

Trainer::Trainer(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                 std::span<const Sequence> validation, const TrainOptions& options, const Backend& backend,
                 ThreadPool& pool)
    : adapter_(adapter),
      sequences_(sequences),
      validation_(validation),
      options_(options),
      pool_(pool),
      limits_(loss_limits(sequences, resolve_micro_tokens(options, sequences))),
      runner_(model, &adapter, limits_, options.gradients, backend, pool),
      optimizer_(make_optimizer(adapter.parameters(), options.optimizer)) {
  PATINA_CHECK(!sequences.empty(), "no sequences");
  // Shuffling decides how sequences fill steps, so epochs may differ by a step: count them all.
  int64_t steps = 0, epochs = 0;
  while (options.steps > 0 ? steps < options.steps : epochs < options.epochs) {
    const int64_t count =
        static_cast<int64_t>(plan_epoch(sequences, options.batch_tokens, options.seed, epochs).size());
    if (epochs == 0) plan_.steps_per_epoch = count;
    steps += count;
    ++epochs;
  }
  plan_.epochs = epochs;
  plan_.total_steps = options.steps > 0 ? options.steps : steps;
  const double warmup = options.warmup < 1.0 ? options.warmup * static_cast<double>(plan_.total_steps) : options.warmup;
  plan_.warmup_steps = std::clamp<int64_t>(static_cast<int64_t>(warmup + 0.5), 0, plan_.total_steps);
  plan_.micro_tokens = resolve_micro_tokens(options, sequences);
  plan_.micro_sequences = limits_.sequences;
  plan_.weights_bytes = model.file().file_bytes();
  if (options.stream_weights) {
    plan_.weights_bytes = streamed_weight_bytes(model, runner_.graph(), adapter);
    runner_.stream_weights(model, adapter);
  }
  const int64_t buffer_bytes = static_cast<int64_t>(adapter.parameters().values().size_bytes());
  plan_.trainable_bytes = 2 * buffer_bytes + adapter.constant_bytes();
  for (const Optimizer::State& state : optimizer_->state())
    plan_.moments_bytes += static_cast<int64_t>(state.values.size_bytes());
  plan_.arena_bytes = runner_.arena_bytes();
  if (!validation.empty()) {
    validation_runner_ = std::make_unique<LossRunner>(model, &adapter, loss_limits(validation, plan_.micro_tokens),
                                                      std::nullopt, backend, pool);
    plan_.arena_bytes += validation_runner_->arena_bytes();
    if (options.stream_weights) {
      validation_runner_->stream_weights(model, adapter);
      plan_.weights_bytes += validation_runner_->window_bytes();
    }
  }
  const ValueId loss = runner_.graph().outputs().front();
  plan_.saved_bytes = live_bytes(runner_.graph(), runner_.plan(), runner_.graph().value(loss).producer);
  plan_.formulations = runner_.formulations();
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

// What is not finite; empty where all is.
std::string Trainer::compute_gradients(const std::vector<size_t>& step, StepReport* report, double* loss_sum,
                                       double* weight_sum, Profile* profile) {
  ParameterStore& store = adapter_.parameters();
  std::fill(store.gradients().begin(), store.gradients().end(), 0.0f);
  report->supervised = supervised_tokens(sequences_, step);
  report->tokens = 0;
  for (const size_t index : step) report->tokens += static_cast<int64_t>(sequences_[index].ids.size());
  *weight_sum = supervised_weight(sequences_, step);
  lap(profile, kOptimizer);
  runner_.begin_step(report->step);
  lap(profile, kPrelude);
  for (const std::vector<size_t>& which : cut_step(sequences_, step, plan_.micro_tokens)) {
    fill(batch_, sequences_, which);
    lap(profile, kData);
    const float weight = sequences_[which.front()].weight;
    const float scale = *weight_sum > 0.0 ? static_cast<float>(static_cast<double>(weight) / *weight_sum) : 0.0f;
    const double loss = runner_.run(batch_, scale, profile);
    if (!std::isfinite(loss)) {
      const std::string where = runner_.find_non_finite(batch_, scale);
      return fmt::format("the loss is {} (first value that is not finite: {})", loss,
                         where.empty() ? "the loss" : where);
    }
    *loss_sum += static_cast<double>(weight) * loss;
  }
  report->grad_norm = global_norm(store.gradients(), pool_);
  if (std::isfinite(report->grad_norm)) return "";
  std::string where = "the norm itself";
  for (const GradientNorm& gradient : gradient_norms())
    if (!std::isfinite(gradient.norm)) where = gradient.parameter;
  return fmt::format("the gradient of {} is not finite", where);
}

void Trainer::run_step(const std::vector<size_t>& step, TrainObserver& observer, Profile* profile) {
  const auto start = std::chrono::steady_clock::now();
  ParameterStore& store = adapter_.parameters();
  StepReport report{};
  report.epoch = state_.epoch + 1;
  report.step = ++state_.steps;
  report.total_steps = plan_.total_steps;
  ++state_.step_in_epoch;
  double loss_sum = 0.0, weight_sum = 0.0;
  const std::string bad = compute_gradients(step, &report, &loss_sum, &weight_sum, profile);
  if (!bad.empty()) {
    observer.on_bad_step({report.step, ++state_.bad_steps, bad});
    if (state_.bad_steps < options_.max_bad_steps) return;
    fail(Error::Kind::kNonFinite, "step {} of {}: {}; the step was not applied{}; lower --lr", report.step,
         report.total_steps, bad,
         state_.bad_steps > 1 ? fmt::format(", nor the {} before it", state_.bad_steps - 1) : "");
  }
  state_.bad_steps = 0;
  report.loss = weight_sum > 0.0 ? loss_sum / weight_sum : 0.0;
  report.clip_scale = clip(store.gradients(), report.grad_norm, options_.grad_clip, pool_);
  report.learning_rate = learning_rate(schedule_, report.step - 1);
  optimizer_->step(store.values(), store.gradients(), report.learning_rate, pool_);
  if (!std::isfinite(global_norm(store.values(), pool_)))
    fail(Error::Kind::kNonFinite, "step {} of {}: the adapter's values are no longer finite; lower --lr", report.step,
         report.total_steps);
  lap(profile, kOptimizer);
  report.ms = milliseconds_since(start);
  report.tokens_per_second = static_cast<double>(report.tokens) / std::max(report.ms, 1e-3) * 1e3;
  state_.loss_sum += loss_sum;
  state_.weight_sum += weight_sum;
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
  Evaluation evaluation;
  try {
    evaluation = evaluate(*validation_runner_, validation_, plan_.micro_tokens);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kNonFinite) throw;
    fail(Error::Kind::kNonFinite,
         "step {} of {}: the loss of the validation after it is not finite: the adapter has "
         "diverged; lower --lr",
         state_.steps, plan_.total_steps);
  }
  const double loss = evaluation.mean_loss();
  const bool best = state_.best_step == 0 || loss < state_.best_validation;
  if (best) {
    state_.best_validation = loss;
    state_.best_step = state_.steps;
  }
  state_.stale_validations = best ? 0 : state_.stale_validations + 1;
  observer.on_eval({state_.steps, loss, evaluation.tokens, best, milliseconds_since(start)});
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
  runner_.prefault();
  auto last = std::chrono::steady_clock::now();  // the end of the last step: what is told of it counts to the next
  if (profile != nullptr) profile->start();
  bool stopped = false;
  std::vector<std::vector<size_t>> epoch_steps;
  int64_t planned_epoch = -1;
  while (!ended() && !stopped) {
    if (planned_epoch != state_.epoch) {
      planned_epoch = state_.epoch;
      epoch_steps = plan_epoch(sequences_, options_.batch_tokens, options_.seed, planned_epoch);
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
    if (validation_runner_ != nullptr &&
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
