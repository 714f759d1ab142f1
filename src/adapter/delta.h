// What an adapter changes of a weight, row by row: for merging, and for tests of everything that computes it otherwise.
#pragma once

#include <cstdint>
#include <span>

#include "adapter/adapted_site.h"

namespace patina {

// Row `row` (Hugging Face order) of delta W [out,in] = adapted W - W, in double precision. `weight` is that row of W;
// only DoRA's change depends on it. Both spans have `in` numbers.
void delta_row(const AdaptedSite& site, int64_t row, std::span<const float> weight, std::span<double> delta);

}  // namespace patina
