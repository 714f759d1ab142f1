#include "train/loss_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/find_non_finite.h"

namespace patina {

namespace {

void* address(const std::vector<int32_t>& ints, int64_t first = 0) { return const_cast<int32_t*>(ints.data()) + first; }

}  // namespace

LossRunner::LossRunner(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                       const std::optional<GradientOptions>& gradients, const Backend& backend, ThreadPool& pool)
    : graph_(build_loss_graph(model, adapter, limits, gradients)),
      executor_(std::make_unique<Executor>(graph_->graph, backend, pool)),
      prelude_(adapter, backend, pool) {}

void LossRunner::begin_step(int64_t step) {
  step_ = static_cast<int32_t>(step);
  prelude_.run();
}

void LossRunner::stream_weights(const DecoderModel& model, const Adapter& adapter) {
  stream_ = std::make_unique<WeightStream>(plan_weight_stream(graph_->graph, model));
  executor_->set_stream(stream_.get());
  prelude_.stream_weights(plan_weight_stream(adapter.prelude(), model));
}

std::vector<int64_t> LossRunner::bind(const MicroBatch& batch, float gradient_scale) {
  executor_->bind(graph_->tokens, address(batch.tokens));
  executor_->bind(graph_->positions, address(batch.positions));
  executor_->bind(graph_->offsets, address(batch.offsets));
  executor_->bind(graph_->first, address(batch.first));
  if (graph_->step != kNoValue) {
    executor_->bind(graph_->step, &step_);
    executor_->bind(graph_->samples, address(batch.samples));
  }
  seed_ = gradient_scale;
  if (graph_->gradients.seed != kNoValue) executor_->bind(graph_->gradients.seed, &seed_);
  const auto size = [](const std::vector<int32_t>& ints) { return static_cast<int64_t>(ints.size()); };
  const std::vector<int64_t> sizes = graph_->sizes(size(batch.tokens), size(batch.first), size(batch.rows));
  int64_t row = 0;
  for (size_t i = 0; i < graph_->supervised.size(); ++i) {
    executor_->bind(graph_->supervised[i].rows, address(batch.rows, row));
    executor_->bind(graph_->supervised[i].labels, address(batch.labels, row));
    row += sizes[sizes.size() - graph_->supervised.size() + i];
  }
  return sizes;
}

double LossRunner::run(const MicroBatch& batch, float gradient_scale, Profile* profile) {
  if (batch.rows.empty()) return 0.0;
  const std::vector<int64_t> sizes = bind(batch, gradient_scale);
  if (profile == nullptr)
    executor_->run(sizes);
  else
    executor_->run(sizes, [&](const Executor::Finished& finished) { profile->lap(finished); });
  return static_cast<double>(executor_->tensor(graph_->loss).f32()[0]);
}

std::string LossRunner::find_non_finite(const MicroBatch& batch, float gradient_scale) {
  return batch.rows.empty() ? "" : patina::find_non_finite(*executor_, bind(batch, gradient_scale));
}

int64_t streamed_weight_bytes(const DecoderModel& model, const Graph& loss, const Adapter& adapter) {
  const StreamPlan plan = plan_weight_stream(loss, model);
  return model.file().file_bytes() - plan.streamed_bytes + plan.most_resident_bytes +
         plan_weight_stream(adapter.prelude(), model).most_resident_bytes;
}

LossLimits loss_limits(std::span<const Sequence> sequences, int64_t micro_tokens) {
  // Counted as fill() lays them out: the last token of a sequence is only a label.
  std::vector<int64_t> lengths;
  for (const Sequence& sequence : sequences)
    if (const int64_t length = static_cast<int64_t>(sequence.ids.size()) - 1; length > 0) lengths.push_back(length);
  std::sort(lengths.begin(), lengths.end());
  LossLimits limits{1, 1, 1};
  if (lengths.empty()) return limits;
  limits.positions = lengths.back();
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  limits.tokens = std::max(limits.positions, std::min(total, micro_tokens));
  int64_t tokens = 0, count = 0;
  while (count < static_cast<int64_t>(lengths.size()) &&
         tokens + lengths[static_cast<size_t>(count)] + 1 <= micro_tokens)
    tokens += lengths[static_cast<size_t>(count++)] + 1;
  limits.sequences = std::max<int64_t>(1, count);
  return limits;
}

Evaluation evaluate(const DecoderModel& model, Adapter* adapter, std::span<const Sequence> sequences,
                    int64_t micro_tokens, const Backend& backend, ThreadPool& pool) {
  LossRunner runner(model, adapter, loss_limits(sequences, micro_tokens), std::nullopt, backend, pool);
  return evaluate(runner, sequences, micro_tokens);
}

Evaluation evaluate(LossRunner& runner, std::span<const Sequence> sequences, int64_t micro_tokens) {
  runner.begin_step(0);
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Evaluation result;
  MicroBatch batch;
  for (const std::vector<size_t>& which : cut_step(sequences, order, micro_tokens)) {
    fill(batch, sequences, which);
    const double loss = runner.run(batch, 0.0f);
    if (!std::isfinite(loss))
      fail(Error::Kind::kNonFinite,
           "the loss is {} (first value that is not finite: {}); the model file or the adapter is damaged", loss,
           runner.find_non_finite(batch, 0.0f));
    result.loss_sum += loss;
    result.supervised_tokens += static_cast<int64_t>(batch.rows.size());
    for (const size_t index : which) result.tokens += static_cast<int64_t>(sequences[index].ids.size());
  }
  return result;
}

}  // namespace patina
