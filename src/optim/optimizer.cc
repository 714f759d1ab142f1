#include "optim/optimizer.h"

#include <algorithm>

#include "optim/adamw.h"
#include "optim/muon.h"

namespace patina {

bool is_lora_b(std::string_view parameter) { return parameter.ends_with(".lora_b"); }

ParameterSplit split_parameters(const ParameterStore& store, const OptimizerOptions& options) {
  constexpr int64_t kShortestSide = 16;
  ParameterSplit split;
  for (const ParameterStore::Slice& slice : store.slices()) {
    const Shape& shape = slice.shape;
    const size_t offset = static_cast<size_t>(slice.offset);
    const double scale = is_lora_b(slice.name) ? options.lora_plus_ratio : 1.0;
    if (options.kind == OptimizerKind::kMuon && shape.rank() == 2 && std::min(shape[0], shape[1]) >= kShortestSide) {
      split.matrices.push_back({offset, shape[0], shape[1], scale});
      split.matrix_parameters += shape.elements();
    } else {
      split.ranges.push_back({offset, static_cast<size_t>(shape.elements()), scale});
    }
  }
  return split;
}

OptimizerMemory optimizer_memory(const ParameterStore& store, const OptimizerOptions& options, int threads) {
  constexpr int64_t kMoment = sizeof(float);
  const ParameterSplit split = split_parameters(store, options);
  OptimizerMemory memory{kMoment * split.matrix_parameters, 0};
  for (const ParameterRange& range : split.ranges)
    memory.moments_bytes += 2 * kMoment * static_cast<int64_t>(range.count);
  for (const ParameterMatrix& matrix : split.matrices)
    memory.scratch_bytes = std::max(memory.scratch_bytes, threads * Muon::scratch_bytes(matrix));
  return memory;
}

std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const OptimizerOptions& options) {
  ParameterSplit split = split_parameters(store, options);
  auto adamw = std::make_unique<AdamW>(std::move(split.ranges), AdamWOptions{.weight_decay = options.weight_decay});
  if (options.kind == OptimizerKind::kAdamW) return adamw;
  return std::make_unique<Muon>(std::move(split.matrices), std::move(adamw),
                                MuonOptions{.scale = options.muon_scale, .weight_decay = options.weight_decay});
}

}  // namespace patina
