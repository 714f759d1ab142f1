#include "train/lm_objective.h"

#include <algorithm>
#include <cmath>

namespace patina {

namespace {

constexpr int64_t kAutoMicroTokens = 512;  // products are at full speed from here on; more only takes memory

}  // namespace

int64_t longest_sequence(std::span<const Sequence> sequences) {
  int64_t tokens = 1;
  for (const Sequence& sequence : sequences) tokens = std::max(tokens, static_cast<int64_t>(sequence.ids.size()));
  return tokens;
}

int64_t resolve_micro_tokens(const LmTrainOptions& options, std::span<const Sequence> sequences) {
  const int64_t wanted = options.micro_tokens > 0 ? options.micro_tokens : kAutoMicroTokens;
  return std::max(longest_sequence(sequences), std::min(wanted, options.batch_tokens));
}

LmObjective::LmObjective(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                         std::span<const Sequence> validation, const LmTrainOptions& options, const Backend& backend,
                         ThreadPool& pool)
    : sequences_(sequences),
      validation_(validation),
      batch_tokens_(options.batch_tokens),
      micro_tokens_(resolve_micro_tokens(options, sequences)),
      seed_(options.seed),
      runner_(model, &adapter, loss_limits(sequences, micro_tokens_), options.gradients, backend, pool) {
  PATINA_CHECK(!sequences.empty(), "no sequences");
  memory_.weights_bytes = model.file().file_bytes();
  if (options.stream_weights) {
    memory_.weights_bytes = streamed_weight_bytes(model, runner_.graph(), adapter);
    runner_.stream_weights(model, adapter);
  }
  memory_.arena_bytes = runner_.arena_bytes();
  if (!validation.empty()) {
    validation_runner_ = std::make_unique<LossRunner>(model, &adapter, loss_limits(validation, micro_tokens_),
                                                      std::nullopt, backend, pool);
    memory_.arena_bytes += validation_runner_->arena_bytes();
    if (options.stream_weights) {
      validation_runner_->stream_weights(model, adapter);
      memory_.weights_bytes += validation_runner_->window_bytes();
    }
  }
  const ValueId loss = runner_.graph().outputs().front();
  memory_.saved_bytes = live_bytes(runner_.graph(), runner_.plan(), runner_.graph().value(loss).producer);
}

std::vector<std::vector<size_t>> LmObjective::plan_epoch(int64_t epoch) const {
  return patina::plan_epoch(sequences_, batch_tokens_, seed_, epoch);
}

StepLoss LmObjective::run_step(int64_t step, std::span<const size_t> samples, Profile* profile) {
  StepLoss result;
  result.supervised = supervised_tokens(sequences_, samples);
  for (const size_t index : samples) result.tokens += static_cast<int64_t>(sequences_[index].ids.size());
  result.weight_sum = supervised_weight(sequences_, samples);
  runner_.begin_step(step);
  lap(profile, "prelude");
  for (const std::vector<size_t>& which : cut_step(sequences_, samples, micro_tokens_)) {
    fill(batch_, sequences_, which);
    lap(profile, "data");
    const float weight = sequences_[which.front()].weight;
    const float scale =
        result.weight_sum > 0.0 ? static_cast<float>(static_cast<double>(weight) / result.weight_sum) : 0.0f;
    const double loss = runner_.run(batch_, scale, profile);
    if (!std::isfinite(loss)) {
      const std::string where = runner_.find_non_finite(batch_, scale);
      result.not_finite =
          fmt::format("the loss is {} (first value that is not finite: {})", loss, where.empty() ? "the loss" : where);
      return result;
    }
    result.loss_sum += static_cast<double>(weight) * loss;
  }
  return result;
}

ValidationLoss LmObjective::validate() {
  const Evaluation evaluation = evaluate(*validation_runner_, validation_, micro_tokens_);
  const double loss = evaluation.mean_loss();
  return {loss, evaluation.tokens, {{"perplexity", std::exp(loss)}}};
}

double LmObjective::epoch_operations() const {
  // As one run: operations are linear in tokens, rows and pairs, however sequences are cut into steps.
  int64_t tokens = 0, rows = 0;
  double pairs = 0;
  MicroBatch batch;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    fill(batch, sequences_, std::span(&i, 1));
    const double length = static_cast<double>(batch.tokens.size());
    tokens += static_cast<int64_t>(batch.tokens.size());
    rows += static_cast<int64_t>(batch.rows.size());
    pairs += length * (length + 1) / 2;
  }
  return run_operations(
      graph(), runner_.sizes(tokens, std::ssize(sequences_), rows), [&](const Node&) { return pairs; }, true);
}

Trainer lm_trainer(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                   std::span<const Sequence> validation, const LmTrainOptions& options, const Backend& backend,
                   ThreadPool& pool) {
  return Trainer(std::make_unique<LmObjective>(model, adapter, sequences, validation, options, backend, pool), adapter,
                 options, pool);
}

}  // namespace patina
