// Packing of the blocked product, compiled once per instruction set.
#if defined(PATINA_BACKEND_CPU_PRODUCT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_PRODUCT_PACK_INL_H_
#undef PATINA_BACKEND_CPU_PRODUCT_PACK_INL_H_
#else
#define PATINA_BACKEND_CPU_PRODUCT_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/product_job.h"
#include "backend/cpu/product_tile-inl.h"
#include "quant/decode.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// Writes four rows of `count` numbers as columns: to[i * stride + r] = row_r[i].
HWY_INLINE void transpose_four(const float* r0, const float* r1, const float* r2, const float* r3, int64_t count,
                               float* to, int64_t stride) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; i + 4 <= count; i += 4) {
    const auto v0 = hn::LoadU(d, r0 + i), v1 = hn::LoadU(d, r1 + i), v2 = hn::LoadU(d, r2 + i),
               v3 = hn::LoadU(d, r3 + i);
    const auto low02 = hn::InterleaveLower(d, v0, v2), high02 = hn::InterleaveUpper(d, v0, v2);
    const auto low13 = hn::InterleaveLower(d, v1, v3), high13 = hn::InterleaveUpper(d, v1, v3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to + i * stride);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + (i + 1) * stride);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + (i + 2) * stride);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + (i + 3) * stride);
  }
#endif
  for (; i < count; ++i) {
    to[i * stride] = r0[i];
    to[i * stride + 1] = r1[i];
    to[i * stride + 2] = r2[i];
    to[i * stride + 3] = r3[i];
  }
}

inline Panel panel_of(const LeftOperand& a) {
  return a.row_stride == 1 && a.column_stride != 1 ? Panel::kColumns : Panel::kRows;
}

// Rows of A that the micro-kernel can read where they lie. Rows a multiple of 4 KiB apart share few sets of the
// first-level cache and would throw each other out.
inline bool readable_in_place(const LeftOperand& a) { return a.column_stride == 1 && a.row_stride % 1024 != 0; }

inline void scale_all(float scale, float* values, int64_t count) {
  if (scale == 1.0f) return;
  for (int64_t i = 0; i < count; ++i) values[i] *= scale;
}

// Rows [row, row + rows) of A, columns [k0, k0 + depth), as rows kPanelStride apart; zeros up to a whole row step.
inline void pack_rows(const LeftOperand& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* to) {
  const float* from = a.data + row * a.row_stride + k0 * a.column_stride;
  for (int64_t r = 0; r < rows; ++r, from += a.row_stride, to += kPanelStride) {
    if (a.column_stride == 1)
      std::memcpy(to, from, static_cast<size_t>(depth) * sizeof(float));
    else
      for (int64_t k = 0; k < depth; ++k) to[k] = from[k * a.column_stride];
  }
  for (; rows % kRowStep != 0; ++rows, to += kPanelStride) std::fill_n(to, depth, 0.0f);
}

// The same as panels of columns, `panel_rows` each, zeros up to a whole row step, and kColumnPanel floats apart:
// several at a time, so that each column of A, which is dense, is read in one stretch.
inline void pack_columns(const LeftOperand& a, int64_t row, int64_t rows, int64_t panel_rows, int64_t k0, int64_t depth,
                         float* to) {
  for (int64_t k = 0; k < depth; ++k) {
    const float* const from = a.data + row + (k0 + k) * a.column_stride;
    if (k + kRowsAhead < depth)
      for (int64_t r = 0; r < rows; r += 16) __builtin_prefetch(from + kRowsAhead * a.column_stride + r);
    float* out = to + k * kTileRows;
    for (int64_t r = 0; r < rows; r += panel_rows, out += kColumnPanel) {
      const int64_t count = std::min(panel_rows, rows - r);
      if (count == kTileRows) {
        std::memcpy(out, from + r, kTileRows * sizeof(float));
        continue;
      }
      int64_t i = 0;
      for (; i + kRowStep <= count; i += kRowStep) std::memcpy(out + i, from + r + i, kRowStep * sizeof(float));
      if (i < count) std::fill_n(std::copy_n(from + r + i, count - i, out + i), kRowStep - (count - i), 0.0f);
    }
  }
}

// Rows of numbers into panels: values [0, columns) of row k go to panel j / kTileColumns; the last panel is filled with
// zeros.
HWY_INLINE void spread_row(const float* from, int64_t k, int64_t depth, int64_t columns, float* to) {
  for (int64_t j = 0; j < columns; j += kTileColumns) {
    const int64_t count = std::min(kTileColumns, columns - j);
    float* const out = to + j * depth + k * kTileColumns;
    if (count == kTileColumns) {
      for (int64_t i = 0; i < kTileColumns; ++i) out[i] = from[j + i];
    } else {
      std::copy_n(from + j, count, out);
      std::fill_n(out + count, kTileColumns - count, 0.0f);
    }
  }
}

// A chunk of B as panels of kTileColumns: panel j holds to[j * depth + k * kTileColumns + i] = B[k0 + k, n0 + j + i]. A
// stored weight is decoded here, once, along whichever axis the product runs.
HWY_INLINE void pack_right(const RightOperand& b, DecodeRow decode, int64_t k0, int64_t depth, int64_t n0,
                           int64_t columns, float* to, float* decoded) {
  const bool rows_along_k = b.weight != nullptr ? b.transposed : b.row_stride == 1 && b.column_stride != 1;
  if (rows_along_k) {  // rows of the source become columns of B
    for (int64_t j = 0; j < columns; j += kTileColumns) {
      const int64_t count = std::min(kTileColumns, columns - j);
      float* const panel = to + j * depth;
      if (count < kTileColumns) std::fill_n(panel, depth * kTileColumns, 0.0f);
      for (int64_t r = 0; r < count; r += 4) {
        const float* rows[4];
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t n = n0 + j + std::min(r + i, count - 1);
          if (b.weight == nullptr) {
            rows[i] = b.data + k0 + n * b.column_stride;
          } else {
            float* const buffer = decoded + i * depth;
            if (n + kRowsAhead < n0 + columns) prefetch_stored(*b.weight, b.first_row + n + kRowsAhead, k0, depth);
            decode(b.weight->row(b.first_row + n), k0, depth, buffer);
            rows[i] = buffer;
          }
        }
        if (r + 4 <= count) {
          transpose_four(rows[0], rows[1], rows[2], rows[3], depth, panel + r, kTileColumns);
        } else {
          for (int64_t i = 0; r + i < count; ++i)
            for (int64_t k = 0; k < depth; ++k) panel[k * kTileColumns + r + i] = rows[i][k];
        }
      }
    }
  } else if (b.weight != nullptr) {
    for (int64_t k = 0; k < depth; ++k) {
      if (k + kRowsAhead < depth) prefetch_stored(*b.weight, b.first_row + k0 + k + kRowsAhead, n0, columns);
      decode(b.weight->row(b.first_row + k0 + k), n0, columns, decoded);
      spread_row(decoded, k, depth, columns, to);
    }
  } else if (b.column_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) spread_row(b.data + (k0 + k) * b.row_stride + n0, k, depth, columns, to);
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) decoded[j] = b.data[(k0 + k) * b.row_stride + (n0 + j) * b.column_stride];
      spread_row(decoded, k, depth, columns, to);
    }
  }
  scale_all(b.scale, to, depth * round_up(columns, kTileColumns));
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
