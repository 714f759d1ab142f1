#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

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

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

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
                 const TrainOptions& options, const Backend& backend, ThreadPool& pool)
    : adapter_(adapter),
      sequences_(sequences),
      options_(options),
      pool_(pool),
      limits_(loss_limits(sequences, resolve_micro_tokens(options, sequences))),
      runner_(model, &adapter, limits_, options.gradients, backend, pool),
      optimizer_(adapter.parameters().values().size(), options.adamw) {
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
  plan_.moments_bytes = 2 * buffer_bytes;
  plan_.arena_bytes = runner_.arena_bytes();
  const ValueId loss = runner_.graph().outputs().front();
  plan_.saved_bytes = live_bytes(runner_.graph(), runner_.plan(), runner_.graph().value(loss).producer);
  plan_.formulations = runner_.formulations();
  schedule_.kind = options.schedule;
  schedule_.peak = options.learning_rate;
  schedule_.warmup_steps = plan_.warmup_steps;
  schedule_.total_steps = plan_.total_steps;
  zero_steps_.assign(adapter.parameters().slices().size(), 0);
}

double Trainer::run_step(const std::vector<size_t>& step, StepReport* report, Profile* profile) {
  const auto start = std::chrono::steady_clock::now();
  ParameterStore& store = adapter_.parameters();
  std::fill(store.gradients().begin(), store.gradients().end(), 0.0f);
  report->supervised = supervised_tokens(sequences_, step);
  report->tokens = 0;
  for (const size_t index : step) report->tokens += static_cast<int64_t>(sequences_[index].ids.size());
  const float scale = report->supervised > 0 ? static_cast<float>(1.0 / static_cast<double>(report->supervised)) : 0.0f;
  lap(profile, kOptimizer);
  runner_.begin_step(report->step);
  lap(profile, kPrelude);
  double loss_sum = 0.0;
  for (const std::vector<size_t>& which : cut_step(sequences_, step, plan_.micro_tokens)) {
    fill(batch_, sequences_, which);
    lap(profile, kData);
    const double loss = runner_.run(batch_, scale, profile);
    if (!std::isfinite(loss)) {
      const std::string where = runner_.find_non_finite(batch_, scale);
      fail(Error::Kind::kNonFinite,
           "step {} of {}: the loss is {} (first value that is not finite: {}); the step was not applied; lower --lr",
           report->step, report->total_steps, loss, where.empty() ? "the loss" : where);
    }
    loss_sum += loss;
  }
  report->loss = report->supervised > 0 ? loss_sum / static_cast<double>(report->supervised) : 0.0;
  report->grad_norm = global_norm(store.gradients(), pool_);
  if (!std::isfinite(report->grad_norm)) {
    std::string where = "the norm itself";
    for (const GradientNorm& gradient : gradient_norms())
      if (!std::isfinite(gradient.norm)) where = gradient.parameter;
    fail(Error::Kind::kNonFinite,
         "step {} of {}: the gradient of {} is not finite; the step was not applied; lower --lr", report->step,
         report->total_steps, where);
  }
  report->clip_scale = clip(store.gradients(), report->grad_norm, options_.grad_clip, pool_);
  report->learning_rate = learning_rate(schedule_, report->step - 1);
  optimizer_.step(store.values(), store.gradients(), report->learning_rate, pool_);
  if (!std::isfinite(global_norm(store.values(), pool_)))
    fail(Error::Kind::kNonFinite, "step {} of {}: the adapter's values are no longer finite; lower --lr", report->step,
         report->total_steps);
  lap(profile, kOptimizer);
  report->ms = milliseconds_since(start);
  report->tokens_per_second = static_cast<double>(report->tokens) / std::max(report->ms, 1e-3) * 1e3;
  return loss_sum;
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
  const std::vector<GradientNorm> norms = gradient_norms();
  for (size_t i = 0; i < norms.size(); ++i) {
    zero_steps_[i] = norms[i].norm == 0.0 ? zero_steps_[i] + 1 : 0;
    if (zero_steps_[i] == kZeroStepsToReport)
      observer.on_warning(fmt::format("the gradient of {} was exactly zero for {} steps: it learns nothing",
                                      norms[i].parameter, kZeroStepsToReport));
  }
}

TrainResult Trainer::run(TrainObserver& observer, const std::function<bool()>& stop, Profile* profile) {
  runner_.prefault();
  if (profile != nullptr) profile->start();
  const auto start = std::chrono::steady_clock::now();
  TrainResult result;
  std::vector<double> epoch_losses;
  int64_t step_number = 0;
  for (int64_t epoch = 0; epoch < plan_.epochs; ++epoch) {
    const auto epoch_start = std::chrono::steady_clock::now();
    double loss_sum = 0.0;
    int64_t supervised = 0;
    StepReport report{};
    bool stopped = false;
    for (const std::vector<size_t>& step : plan_epoch(sequences_, options_.batch_tokens, options_.seed, epoch)) {
      if (step_number == plan_.total_steps) break;
      report.epoch = epoch + 1;
      report.step = ++step_number;
      report.total_steps = plan_.total_steps;
      loss_sum += run_step(step, &report, profile);
      supervised += report.supervised;
      result.steps = step_number;
      observer.on_step(report);
      watch_zero_gradients(observer);
      lap(profile, kReports);
      stopped = stop();
      if (stopped) break;
    }
    EpochReport summary{};
    summary.epoch = epoch + 1;
    summary.epochs = plan_.epochs;
    summary.step = step_number;
    summary.loss = supervised > 0 ? loss_sum / static_cast<double>(supervised) : 0.0;
    epoch_losses.push_back(summary.loss);
    const size_t recent = std::min<size_t>(5, epoch_losses.size());
    for (size_t i = epoch_losses.size() - recent; i < epoch_losses.size(); ++i)
      summary.mean_of_last_five += epoch_losses[i] / static_cast<double>(recent);
    summary.best = epoch == 0 || summary.loss < result.best_loss;
    if (summary.best) result.best_loss = summary.loss;
    summary.learning_rate = report.learning_rate;
    summary.grad_norm = report.grad_norm;
    summary.ms = milliseconds_since(epoch_start);
    summary.eta_ms = milliseconds_since(start) / static_cast<double>(std::max<int64_t>(1, step_number)) *
                     static_cast<double>(plan_.total_steps - step_number);
    observer.on_epoch(summary);
    result.epochs = epoch + 1;
    result.final_loss = summary.loss;
    if (stopped) {
      result.reason = TrainResult::Reason::kInterrupted;
      break;
    }
  }
  result.ms = milliseconds_since(start);
  return result;
}

}  // namespace patina
