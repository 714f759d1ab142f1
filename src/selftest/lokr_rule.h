// LyCORIS's rule of factors in closed form, apart from the one in use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace patina {

// (f, width / f) sorted where f > 0 divides the width; otherwise (m, width / m) with the largest divisor m of the width
// that is at most sqrt(width) and, but for f = -1, at most f.
inline std::pair<int64_t, int64_t> closed_factor_pair(int64_t width, int64_t factor) {
  if (factor > 0 && width % factor == 0) return {std::min(factor, width / factor), std::max(factor, width / factor)};
  int64_t best = 1;
  for (int64_t divisor = 1; divisor * divisor <= width; ++divisor)
    if (width % divisor == 0 && (factor == -1 || divisor <= factor)) best = divisor;
  return {best, width / best};
}

}  // namespace patina
