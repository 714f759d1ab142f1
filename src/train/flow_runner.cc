#include "train/flow_runner.h"

#include "graph/find_non_finite.h"

namespace patina {

namespace {

template <typename T>
void* address(const std::vector<T>& values) {
  return const_cast<T*>(values.data());
}

}  // namespace

FlowRunner::FlowRunner(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
                       const std::optional<GradientOptions>& gradients, const Backend& backend, ThreadPool& pool)
    : flow_(build_flow_graph(model, adapter, limits, gradients)),
      executor_(std::make_unique<Executor>(flow_->graph, backend, pool)),
      prelude_(adapter, backend, pool) {}

void FlowRunner::stream_weights(const DitModel& model, const Adapter& adapter) {
  stream_ = std::make_unique<WeightStream>(plan_weight_stream(flow_->graph, model));
  executor_->set_stream(stream_.get());
  prelude_.stream_weights(plan_weight_stream(adapter.prelude(), model));
}

void FlowRunner::begin_step(int64_t step) {
  step_ = static_cast<int32_t>(step);
  prelude_.run();
}

std::vector<int64_t> FlowRunner::bind(const FlowBatch& batch, float gradient_scale) {
  executor_->bind(flow_->input, address(batch.input));
  executor_->bind(flow_->conditioning, address(batch.conditioning));
  executor_->bind(flow_->times, address(batch.times));
  executor_->bind(flow_->differences, address(batch.differences));
  executor_->bind(flow_->positions, address(batch.positions));
  executor_->bind(flow_->songs, address(batch.songs));
  executor_->bind(flow_->offsets, address(batch.offsets));
  executor_->bind(flow_->conditioning_offsets, address(batch.conditioning_offsets));
  executor_->bind(flow_->first, address(batch.first));
  executor_->bind(flow_->target, address(batch.target));
  executor_->bind(flow_->weight, address(batch.weight));
  if (flow_->step != kNoValue) {
    executor_->bind(flow_->step, &step_);
    executor_->bind(flow_->samples, address(batch.samples));
    executor_->bind(flow_->conditioning_samples, address(batch.conditioning_samples));
    executor_->bind(flow_->conditioning_positions, address(batch.conditioning_positions));
  }
  seed_ = gradient_scale;
  if (flow_->gradients.seed != kNoValue) executor_->bind(flow_->gradients.seed, &seed_);
  return FlowGraph::sizes(std::ssize(batch.positions), std::ssize(batch.conditioning_positions),
                          std::ssize(batch.first));
}

double FlowRunner::run(const FlowBatch& batch, float gradient_scale, Profile* profile) {
  const std::vector<int64_t> sizes = bind(batch, gradient_scale);
  if (profile == nullptr)
    executor_->run(sizes);
  else
    executor_->run(sizes, [&](const Executor::Finished& finished) { profile->lap(finished); });
  double sum = 0.0;
  for (const float loss : losses()) sum += static_cast<double>(loss);
  return sum;
}

std::span<const float> FlowRunner::losses() const {
  const Tensor losses = executor_->tensor(flow_->losses);
  return {losses.f32(), static_cast<size_t>(losses.shape[0])};
}

std::string FlowRunner::find_non_finite(const FlowBatch& batch, float gradient_scale) {
  return patina::find_non_finite(*executor_, bind(batch, gradient_scale));
}

int64_t streamed_weight_bytes(const DitModel& model, const Graph& flow, const Adapter& adapter) {
  const StreamPlan plan = plan_weight_stream(flow, model);
  return model.files().file_bytes() - plan.streamed_bytes + plan.most_resident_bytes +
         plan_weight_stream(adapter.prelude(), model).most_resident_bytes;
}

}  // namespace patina
