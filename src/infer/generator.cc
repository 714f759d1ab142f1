#include "infer/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "adapter/prelude.h"
#include "base/philox.h"
#include "base/scalar_math.h"

namespace patina {

namespace {

constexpr int64_t kPromptTokens = 256;  // of a prompt, in one run

}  // namespace

int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t index) {
  const auto greatest = std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(*greatest))
    fail(Error::Kind::kNonFinite, "the model's logits are not finite; the model file or the adapter is damaged");
  if (sampling.temperature <= 0.0) return static_cast<int32_t>(greatest - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> weight(logits.size());
  double total = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double z = static_cast<double>(logits[i] - *greatest) / sampling.temperature;
    weight[i] = z < -700.0 ? 0.0 : exact_exp(z);
    total += weight[i];
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  size_t kept = 0;
  double mass = 0.0;
  while (kept < order.size() && (kept == 0 || mass < sampling.top_p * total))
    mass += weight[static_cast<size_t>(order[kept++])];
  double draw = RandomStream(sampling.seed, RandomUse::kSample, 0).uniform(index) * mass;
  for (size_t i = 0; i < kept; ++i) {
    draw -= weight[static_cast<size_t>(order[i])];
    if (draw < 0.0) return order[i];
  }
  return order[kept - 1];
}

Generator::Generator(const DecoderModel& model, Adapter* adapter, const Backend& backend, ThreadPool& pool,
                     int64_t cache_tokens, bool stream_weights)
    : capacity_(cache_tokens),
      graph_(build_cache_graph(model, adapter, cache_tokens, std::min(cache_tokens, kPromptTokens), 1)),
      executor_(std::make_unique<Executor>(graph_->graph, backend, pool)) {
  Prelude prelude(adapter, backend, pool);
  if (stream_weights) {
    stream_ = std::make_unique<WeightStream>(plan_weight_stream(graph_->graph, model));
    executor_->set_stream(stream_.get());
    if (adapter != nullptr) prelude.stream_weights(plan_weight_stream(adapter->prelude(), model));
  }
  prelude.run();
  prelude_bytes_ = prelude.arena_bytes();
}

int64_t Generator::memory_bytes() const {
  int64_t bytes = executor_->plan().arena_bytes;
  for (const std::vector<float>& cache : graph_->caches) bytes += static_cast<int64_t>(4 * cache.size());
  return std::max(bytes, prelude_bytes_);
}

int64_t Generator::window_bytes() const { return stream_ ? stream_->plan().most_resident_bytes : 0; }

std::span<const float> Generator::feed(std::span<const int32_t> tokens) {
  PATINA_CHECK(!tokens.empty(), "no token");
  if (length_ + static_cast<int64_t>(tokens.size()) > capacity_)
    fail(Error::Kind::kUsage, "{} tokens do not fit into a context of {}; shorten the prompt or raise --context",
         length_ + static_cast<int64_t>(tokens.size()), capacity_);
  while (!tokens.empty()) {
    const int64_t count = std::min<int64_t>(kPromptTokens, static_cast<int64_t>(tokens.size()));
    tokens_.assign(tokens.begin(), tokens.begin() + count);
    positions_.resize(static_cast<size_t>(count));
    std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(length_));
    int32_t q_offsets[2] = {0, static_cast<int32_t>(count)}, kv_offsets[2] = {0, static_cast<int32_t>(length_ + count)};
    int32_t position = static_cast<int32_t>(length_), row = static_cast<int32_t>(count - 1);
    executor_->bind(graph_->tokens, tokens_.data());
    executor_->bind(graph_->positions, positions_.data());
    executor_->bind(graph_->q_offsets, q_offsets);
    executor_->bind(graph_->kv_offsets, kv_offsets);
    executor_->bind(graph_->first, &position);
    executor_->bind(graph_->position, &position);
    executor_->bind(graph_->rows, &row);
    const int64_t sizes[] = {count, 1};
    executor_->run(sizes);
    length_ += count;
    tokens = tokens.subspan(static_cast<size_t>(count));
  }
  const Tensor logits = executor_->tensor(graph_->logits);
  return {logits.f32(), static_cast<size_t>(logits.shape[1])};
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, int64_t max_tokens, const Sampling& sampling,
                                         FunctionRef<bool(int32_t)> is_end, FunctionRef<bool(int32_t)> on_token) {
  std::vector<int32_t> answer;
  std::span<const float> logits = feed(prompt);
  for (int64_t count = 0; count < max_tokens; ++count) {
    if (count > 0) logits = feed({&answer.back(), 1});
    const int32_t token = sample(logits, sampling, answer.size());
    if (is_end(token)) break;
    answer.push_back(token);
    if (!on_token(token) || length_ >= capacity_) break;
  }
  return answer;
}

}  // namespace patina
