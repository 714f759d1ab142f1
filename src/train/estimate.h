// How long a run will take: an estimate from its operations and a short calibration.
#pragma once

#include <span>

#include "train/trainer.h"

namespace patina {

struct TimeEstimate {
  double step_operations;  // the mean of a step's, with forward work that is done again
  double gflops;           // of the frozen products of one layer, forward and backward, now on this machine
  double step_ms, total_ms;
};

// Runs `products`, the frozen ones of one layer, with so many tokens for about a second, after a first run that reads
// their weights; touches no other weight. Norms, rope and the optimizer are taken to be as fast as products, so a run
// takes somewhat longer.
TimeEstimate estimate_time(const Trainer& trainer, std::span<const Tensor* const> products, int64_t tokens,
                           Formulation formulation, const Backend& backend, ThreadPool& pool);

}  // namespace patina
