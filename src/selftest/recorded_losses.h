// A training whose losses are wanted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "train/trainer.h"

namespace patina {

// Runs a trainer to its end; returns the loss of each step. `after_step` gets the number of steps done.
std::vector<double> recorded_losses(Trainer trainer, FunctionRef<void(int64_t)> after_step);

}  // namespace patina
