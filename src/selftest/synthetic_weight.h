// Weights of synthetic models.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "tensor/tensor.h"

namespace patina {

// A random weight W [rows, columns] of any decodable type, values of about 1/16 as a layer of 256 inputs has them.
// columns is a multiple of the type's block.
std::vector<std::byte> synthetic_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed, ThreadPool& pool);

}  // namespace patina
