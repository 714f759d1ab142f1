// Random stored weights of any type: random codes under scales of sensible size, so that decoded values are about 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace patina {

// Every type that is stored in blocks.
std::vector<DType> block_types();

std::vector<std::byte> random_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed);

}  // namespace patina
