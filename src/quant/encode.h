// F32 to stored rows, for the simple types: F32, F16, BF16, Q8_0, Q4_0, Q4_1. The K and IQ types search for their
// scales; llama.cpp's quantiser makes them.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace patina {

// Encodes `count` values (a multiple of the block), bit for bit as the `gguf` package's quantisation does. Values must
// be finite; F16, and the F16 scales of blocks, become infinite where a value is too large.
using EncodeRow = void (*)(const float* values, int64_t count, void* out);

// nullptr where the type cannot be encoded.
EncodeRow encode_row(DType dtype);
// "F32, F16, ...": the types that can be encoded.
std::string encodable_names();

}  // namespace patina
