// Clipping by the global norm (Pascanu et al., arXiv 1211.5063).
#pragma once

#include <span>

#include "base/threads.h"

namespace patina {

// The 2-norm over the whole buffer: fixed partial sums in double, the same bits for any number of threads. Not finite
// where a gradient is not.
double global_norm(std::span<const float> gradients, ThreadPool& pool);
// Scales gradients, whose (finite) norm is `norm`, so that it is at most max_norm (0 = off). Returns the factor
// applied, 1 where none.
double clip(std::span<float> gradients, double norm, double max_norm, ThreadPool& pool);

}  // namespace patina
