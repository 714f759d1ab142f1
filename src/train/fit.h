// What a training run does to fit into memory.
#pragma once

#include <cstdint>
#include <span>

#include "train/trainer.h"

namespace patina {

// What may be chosen for the run; the rest stays as the options say.
struct FitChoices {
  bool segments, micro_tokens, weights;
};

struct MemoryFit {
  int segments;         // of GradientOptions
  bool stream_weights;  // of TrainOptions, as the next
  int64_t micro_tokens;
  int64_t weights_bytes;  // of the model's file in memory
  int64_t arena_bytes;    // activations and scratch
  bool fits;              // false: nothing does, and this is the smallest
};

// The fastest setting whose weights and arena take at most budget_bytes: as the options say; else with as little
// recompute as will do; else, with all of it, with smaller micro-batches, down to the longest sequence; else the same
// again with streamed weights.
MemoryFit fit_memory(const DecoderModel& model, Adapter& adapter, std::span<const Sequence> sequences,
                     const TrainOptions& options, FitChoices choices, int64_t budget_bytes, const Backend& backend,
                     int threads);

}  // namespace patina
