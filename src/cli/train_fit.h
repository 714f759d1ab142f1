// How a training run fits into memory.
#pragma once

#include <memory>
#include <span>

#include "cli/train_events.h"

namespace patina {

// Error(kMemory) where the trainable parameters alone are more than the machine holds. Before they are allocated: a
// rank that no machine holds would take this one down.
void check_trainables(std::span<const Site> sites, const AdapterOptions& options);

// The trainer of the run with the fastest options that fit into its memory beside `fixed_bytes`; `flags` has them then,
// and what was chosen is said. Error(kMemory) with the smallest figure where nothing fits.
std::unique_ptr<Trainer> fit(const LanguageModel& model, Adapter& adapter, const Dataset& data,
                             const Validation& validation, TrainFlags& flags, int64_t budget_bytes, int64_t fixed_bytes,
                             ThreadPool& pool);

}  // namespace patina
