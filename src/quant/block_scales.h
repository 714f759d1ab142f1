// Where the block types keep their F16 scales: what turns random bytes into blocks of sensible values, for measurements
// and tests.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace patina {

// MXFP4, whose scale is a power of two in one byte, has no row.
struct BlockScales {
  DType dtype;
  int exponent;  // of scales that bring values to about 1: a code is up to 2^bits times a sub-scale
  std::array<size_t, 2> offset_bytes;
  size_t count;

  std::span<const size_t> offsets() const { return std::span(offset_bytes).first(count); }
};
inline constexpr BlockScales kBlockScales[] = {
    {DType::kQ8_0, -6, {0}, 1},    {DType::kQ4_0, -2, {0}, 1},    {DType::kQ4_1, -3, {0, 2}, 2},
    {DType::kQ5_0, -3, {0}, 1},    {DType::kQ5_1, -4, {0, 2}, 2}, {DType::kQ2_K, -4, {80, 82}, 2},
    {DType::kQ3_K, -5, {108}, 1},  {DType::kQ4_K, -8, {0, 2}, 2}, {DType::kQ5_K, -9, {0, 2}, 2},
    {DType::kQ6_K, -10, {208}, 1}, {DType::kIQ4_NL, -6, {0}, 1},  {DType::kIQ4_XS, -10, {0}, 1},
};

}  // namespace patina
