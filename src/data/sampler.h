// Which sequences an optimizer step holds, and how a step is cut into micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace patina {

// The steps of an epoch: sequences in shuffled order (Fisher-Yates with the Philox stream of (seed, epoch)), whole
// sequences filled greedily up to batch_tokens; a sequence that does not fit begins the next step (one longer than
// batch_tokens has a step alone). Every sequence appears exactly once an epoch.
std::vector<std::vector<size_t>> plan_epoch(std::span<const Sequence> sequences, int64_t batch_tokens, uint64_t seed,
                                            int64_t epoch);

// Cuts a step's sequences, in order, into micro-batches of at most micro_tokens tokens each (at least one sequence
// each). All of a micro-batch have the same weight: where weights differ, the sequences are put in their order first.
std::vector<std::vector<size_t>> cut_step(std::span<const Sequence> sequences, std::span<const size_t> step,
                                          int64_t micro_tokens);

// The labels in a step: fill() lays out as many.
int64_t supervised_tokens(std::span<const Sequence> sequences, std::span<const size_t> step);
// The same, each label counted by the weight of its sequence: what the weighted sum is divided by.
double supervised_weight(std::span<const Sequence> sequences, std::span<const size_t> step);

// A micro-batch laid end to end, ready to bind.
struct MicroBatch {
  std::vector<int32_t> tokens;     // [T] inputs
  std::vector<int32_t> positions;  // [T], restart at each sequence
  std::vector<int32_t> samples;    // [T], which sample of the data set the token is of
  std::vector<int32_t> offsets;    // [B+1]
  std::vector<int32_t> first;      // [B], zeros
  std::vector<int32_t> rows;       // [M] rows whose next token is a label
  std::vector<int32_t> labels;     // [M]
};
// The inputs of a sequence end with the row that predicts its last label: later tokens can change no loss under a
// causal mask, and are left out. A sequence without labels gives nothing, so a micro-batch may come out empty (offsets
// = {0}). Keeps the capacity of the vectors.
void fill(MicroBatch& batch, std::span<const Sequence> sequences, std::span<const size_t> which);

}  // namespace patina
