// Random numbers for operands of tests.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace patina {

// `count` normal numbers times `scale`; each stream has its own.
inline std::vector<float> normals(int64_t count, uint32_t stream, double scale) {
  const RandomStream random(1, RandomUse::kTest, stream);
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>(scale * random.normal(static_cast<uint64_t>(i))));
  return numbers;
}

}  // namespace patina
