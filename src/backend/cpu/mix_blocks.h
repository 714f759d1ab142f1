// Where the blocks lie that mix_blocks.cc works on.
#pragma once

#include <cstdint>

namespace patina::cpu {

// `from` blocks of a row to `to` blocks; element (i, p) of the small matrix at w[i * row_stride + p * column_stride].
struct BlockMix {
  const float* w;
  int64_t row_stride, column_stride;
  int64_t to, from, columns;
};

// Rows of `lefts` blocks beside rows of `rights` blocks of the same width.
struct BlockPairs {
  const float* left;
  int64_t left_stride;
  const float* right;
  int64_t right_stride;
  int64_t lefts, rights, columns;
};

}  // namespace patina::cpu
