// Stored rows to F32. A weight type supplies exactly this; products, lookups and references are built on it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace patina {

// Decodes values [begin, begin + count) of one stored row to F32, bit for bit what the `gguf` package's dequantisation
// gives (ggml's plain formula, no fused operations). begin and count are in values; for block types both must be
// multiples of the block, except that count may end at the row's end.
using DecodeRow = void (*)(const void* row, int64_t begin, int64_t count, float* out);

// The decoder of a type for the best instruction set of this machine, or nullptr where the type cannot be decoded
// (is_decodable() false). The result is the same to the bit for every instruction set.
DecodeRow decode_row(DType dtype);
bool is_decodable(DType dtype);

}  // namespace patina
