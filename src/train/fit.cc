#include "train/fit.h"

#include <algorithm>
#include <vector>

namespace patina {

namespace {

// 1, 2, 3, 4, 6, 8, 12 ...: each saves enough over the one before to be worth planning.
std::vector<int> segment_counts(int first, int layers) {
  std::vector<int> counts;
  for (int power = 1; power < layers; power *= 2)
    for (const int count : {power, power * 3 / 2})
      if (count >= first && count < layers && (counts.empty() || count > counts.back())) counts.push_back(count);
  counts.push_back(std::max(first, layers));
  return counts;
}

}  // namespace

MemoryFit fit_memory(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                     const TrainOptions& options, FitChoices choices, int64_t budget_bytes, const Backend& backend,
                     int threads) {
  const int64_t prelude_bytes = plan_memory(adapter.prelude(), backend, threads).arena_bytes;
  const auto plan = [&](int segments, int64_t micro_tokens, bool stream_weights) {
    const auto graph = build_loss_graph(model, &adapter, loss_limits(sequences, micro_tokens),
                                        GradientOptions{options.gradients.formulation, segments});
    const int64_t arena_bytes = plan_memory(graph->graph, backend, threads).arena_bytes + prelude_bytes;
    const int64_t weights_bytes =
        stream_weights ? streamed_weight_bytes(model, graph->graph, adapter) : model.file().file_bytes();
    return MemoryFit{segments,      stream_weights, micro_tokens,
                     weights_bytes, arena_bytes,    weights_bytes + arena_bytes <= budget_bytes};
  };
  const int64_t most = resolve_micro_tokens(options, sequences), least = longest_sequence(sequences);
  std::vector<int> counts = {options.gradients.segments};
  if (choices.segments) counts = segment_counts(options.gradients.segments, model.config().layers);
  MemoryFit smallest{};
  const auto consider = [&](const MemoryFit& fit) {
    const auto bytes = [](const MemoryFit& f) { return f.weights_bytes + f.arena_bytes; };
    if (smallest.micro_tokens == 0 || bytes(fit) < bytes(smallest)) smallest = fit;
    return fit.fits;
  };
  for (const bool stream : {false, true}) {
    if (stream < options.stream_weights || (stream > options.stream_weights && !choices.weights)) continue;
    for (const int count : counts)
      if (const MemoryFit fit = plan(count, most, stream); consider(fit)) return fit;
    for (int64_t tokens = most; choices.micro_tokens && tokens > least;) {
      tokens = std::max(least, tokens / 2);
      if (const MemoryFit fit = plan(counts.back(), tokens, stream); consider(fit)) return fit;
    }
  }
  return smallest;
}

}  // namespace patina
