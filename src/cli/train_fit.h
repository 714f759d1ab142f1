// How a training run fits into memory.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "cli/train_flags.h"
#include "train/fit.h"

namespace patina {

// Error(kMemory) where the trainable parameters alone are more than the machine holds. Before they are allocated: a
// rank that no machine holds would take this one down.
void check_trainables(std::span<const Site> sites, const AdapterOptions& options);

// What is fitted.
struct FitSubject {
  int layers;                  // of the model
  int64_t micro;               // in memory at once: as asked for, or where the search begins
  bool micro_auto;             // it may be lowered
  const char* micro_flag;      // that says it
  int64_t later_bytes;         // that the run takes beside, once it goes on
  int64_t later_window_bytes;  // of streamed weights, beside
  const char* largest_flag;    // that says how large a sample is: what a user may lower where nothing fits
  std::function<MemoryFit(const TrainOptions&, FitChoices, int64_t budget_bytes)> plan;
  std::function<std::unique_ptr<Trainer>(const TrainOptions&, int64_t micro)> make;
};

struct Fitted {
  std::unique_ptr<Trainer> trainer;
  int64_t micro;
};

// The trainer of the run with the fastest options that fit into its memory beside `fixed_bytes`; `flags` has them then,
// and what was chosen is said. Error(kMemory) with the smallest figure where nothing fits.
Fitted fit(const FitSubject& subject, TrainFlags& flags, int64_t budget_bytes, int64_t fixed_bytes);

}  // namespace patina
