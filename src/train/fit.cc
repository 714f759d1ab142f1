#include "train/fit.h"

#include <algorithm>
#include <optional>
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

MemoryFit search_fit(const FitRange& range, FitChoices choices, int64_t budget_bytes,
                     FunctionRef<MemoryFit(int segments, int64_t micro, bool stream_weights)> plan) {
  std::vector<int> counts = {range.segments};
  if (choices.segments) counts = segment_counts(range.segments, range.layers);
  const auto bytes = [](const MemoryFit& fit) { return fit.weights_bytes + fit.arena_bytes; };
  std::optional<MemoryFit> smallest;
  const auto consider = [&](int segments, int64_t micro, bool stream) {
    MemoryFit fit = plan(segments, micro, stream);
    fit.fits = bytes(fit) <= budget_bytes;
    if (!smallest || bytes(fit) < bytes(*smallest)) smallest = fit;
    return fit.fits ? std::optional(fit) : std::nullopt;
  };
  for (const bool stream : {false, true}) {
    if (stream < range.stream_weights || (stream > range.stream_weights && !choices.weights)) continue;
    for (const int count : counts)
      if (const auto fit = consider(count, range.micro, stream)) return *fit;
    for (int64_t micro = range.micro; choices.micro && micro > range.least_micro;) {
      micro = std::max(range.least_micro, micro / 2);
      if (const auto fit = consider(counts.back(), micro, stream)) return *fit;
    }
  }
  return *smallest;
}

MemoryFit fit_memory(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                     const LmTrainOptions& options, FitChoices choices, int64_t budget_bytes, const Backend& backend,
                     int threads) {
  const int64_t prelude_bytes = plan_memory(adapter.prelude(), backend, threads).arena_bytes;
  const FitRange range{options.gradients.segments, model.config().layers, resolve_micro_tokens(options, sequences),
                       longest_sequence(sequences), options.stream_weights};
  return search_fit(range, choices, budget_bytes, [&](int segments, int64_t micro_tokens, bool stream_weights) {
    const auto graph = build_loss_graph(model, &adapter, loss_limits(sequences, micro_tokens),
                                        GradientOptions{options.gradients.formulation, segments});
    const int64_t arena_bytes = plan_memory(graph->graph, backend, threads).arena_bytes + prelude_bytes;
    const int64_t weights_bytes =
        stream_weights ? streamed_weight_bytes(model, graph->graph, adapter) : model.file().file_bytes();
    return MemoryFit{segments, stream_weights, micro_tokens, weights_bytes, arena_bytes, false};
  });
}

MemoryFit fit_memory(const DitModel& model, Adapter& adapter, std::span<const Song> songs,
                     const FlowTrainOptions& options, int64_t least_crop, FitChoices choices, int64_t budget_bytes,
                     const Backend& backend, int threads) {
  const int64_t prelude_bytes = plan_memory(adapter.prelude(), backend, threads).arena_bytes;
  const FitRange range{options.gradients.segments, model.config().layers, options.flow.crop_frames, least_crop,
                       options.stream_weights};
  return search_fit(range, choices, budget_bytes, [&](int segments, int64_t crop, bool stream_weights) {
    FlowOptions flow = options.flow;
    flow.crop_frames = crop;
    const auto graph = build_flow_graph(model, &adapter, flow_limits(songs, flow, options.batch, model.config().patch),
                                        GradientOptions{options.gradients.formulation, segments});
    const int64_t arena_bytes = plan_memory(graph->graph, backend, threads).arena_bytes + prelude_bytes;
    const int64_t weights_bytes =
        stream_weights ? streamed_weight_bytes(model, graph->graph, adapter) : model.files().file_bytes();
    return MemoryFit{segments, stream_weights, crop, weights_bytes, arena_bytes, false};
  });
}

}  // namespace patina
