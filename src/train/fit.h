// What a training run does to fit into memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "train/flow_objective.h"
#include "train/lm_objective.h"

namespace patina {

// What may be chosen for the run; the rest stays as the options say.
struct FitChoices {
  bool segments, micro, weights;
};

struct MemoryFit {
  int segments;           // of GradientOptions
  bool stream_weights;    // of TrainOptions
  int64_t micro;          // what is in memory at once, in what the run counts it: tokens of text
  int64_t weights_bytes;  // of the model's file in memory
  int64_t arena_bytes;    // activations and scratch
  bool fits;              // false: nothing does, and this is the smallest
};

// What is searched: from what the options ask for to the slowest that takes the least.
struct FitRange {
  int segments, layers;  // as many segments as layers at most
  int64_t micro, least_micro;
  bool stream_weights;
};

// The fastest setting whose weights and arena take at most budget_bytes: as the options say; else with as little
// recompute as will do; else, with all of it, with smaller micro-batches, down to the least; else the same again with
// streamed weights. `plan` says what a setting takes; its `fits` is not read.
MemoryFit search_fit(const FitRange& range, FitChoices choices, int64_t budget_bytes,
                     FunctionRef<MemoryFit(int segments, int64_t micro, bool stream_weights)> plan);

// The same for a language model.
MemoryFit fit_memory(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                     const LmTrainOptions& options, FitChoices choices, int64_t budget_bytes, const Backend& backend,
                     int threads);

// The same for a diffusion transformer, whose micro is the crop in frames (0: whole songs), at least `least_crop`.
MemoryFit fit_memory(const DitModel& model, Adapter& adapter, std::span<const Song> songs,
                     const FlowTrainOptions& options, int64_t least_crop, FitChoices choices, int64_t budget_bytes,
                     const Backend& backend, int threads);

}  // namespace patina
