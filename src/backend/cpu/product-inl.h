// Packing and micro-kernels of the blocked product, compiled once per instruction set.
#if defined(PATINA_BACKEND_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_PRODUCT_INL_H_
#undef PATINA_BACKEND_CPU_PRODUCT_INL_H_
#else
#define PATINA_BACKEND_CPU_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/product_job.h"
#include "backend/cpu/reduce-inl.h"
#include "quant/decode.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// A tile of C is kTileRows x kTileColumns: as many accumulators as the registers hold, two or more vectors wide. 12 x 2
// of 32 registers with AVX-512, 6 x 2 of 16 with AVX2; the portable target keeps to what a compiler can hold.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kTileRows = 4, kTileVectors = HWY_TARGET == HWY_SCALAR ? 4 : 1;
#elif HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 12, kTileVectors = 2;
#else
constexpr int kTileRows = 6, kTileVectors = 2;
#endif
constexpr int64_t kTileColumns = kTileVectors * kLanes;

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

// One panel of A: to[k * kTileRows + r] = scale * A[row + r, k0 + k], zero beyond `rows`.
HWY_INLINE void pack_left(const LeftOperand& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* to) {
  const float* const from = a.data + row * a.row_stride + k0 * a.column_stride;
  if (rows < kTileRows) std::fill_n(to, depth * kTileRows, 0.0f);
  int64_t r = 0;
  if (a.column_stride == 1)
    for (; r + 4 <= rows; r += 4)
      transpose_four(from + r * a.row_stride, from + (r + 1) * a.row_stride, from + (r + 2) * a.row_stride,
                     from + (r + 3) * a.row_stride, depth, to + r, kTileRows);
  if (a.row_stride == 1 && rows == kTileRows) {
    for (int64_t k = 0; k < depth; ++k)
      std::memcpy(to + k * kTileRows, from + k * a.column_stride, kTileRows * sizeof(float));
    r = rows;
  }
  for (; r < rows; ++r)
    for (int64_t k = 0; k < depth; ++k) to[k * kTileRows + r] = from[r * a.row_stride + k * a.column_stride];
  if (a.scale != 1.0f)
    for (int64_t i = 0; i < depth * kTileRows; ++i) to[i] *= a.scale;
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
}

template <bool kLoad>
HWY_INLINE void full_tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                          float* HWY_RESTRICT c, int64_t c_stride) {
  const Floats d;
  using V = FloatVector;
  V sum[kTileRows][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = kLoad ? hn::LoadU(d, c + r * c_stride + v * kLanes) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    V right[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) right[v] = hn::LoadU(d, b + k * kTileColumns + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const V left = hn::Set(d, a[k * kTileRows + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kLanes);
}

// C tile = (load ? C : 0) + A panel . B panel. Tiles at the edge go through a full tile of their own.
HWY_NOINLINE void tile(int64_t depth, const float* a, const float* b, float* c, int64_t c_stride, int64_t rows,
                       int64_t columns, bool load) {
  if (rows == kTileRows && columns == kTileColumns) {
    if (load)
      full_tile<true>(depth, a, b, c, c_stride);
    else
      full_tile<false>(depth, a, b, c, c_stride);
    return;
  }
  HWY_ALIGN float edge[kTileRows * kTileColumns];
  if (load) {
    std::fill_n(edge, kTileRows * kTileColumns, 0.0f);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(c + r * c_stride, columns, edge + r * kTileColumns);
    full_tile<true>(depth, a, b, edge, kTileColumns);
  } else {
    full_tile<false>(depth, a, b, edge, kTileColumns);
  }
  for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kTileColumns, columns, c + r * c_stride);
}

constexpr int64_t kStretch = 1024;  // values decoded at a time: 4 KB a row, and a multiple of 16 and of every block

// partials[r] += x * decoded row r, over `count` columns.
HWY_INLINE void add_products(int64_t count, const float* HWY_RESTRICT x, const float (*HWY_RESTRICT decoded)[kStretch],
                             float (*HWY_RESTRICT partials)[kPartials]) {
  const Floats d;
  FloatVector sums[kRowsTogether][kPartialVectors];
  for (int64_t r = 0; r < kRowsTogether; ++r)
    for (int64_t v = 0; v < kPartialVectors; ++v) sums[r][v] = hn::Load(d, partials[r] + v * kLanes);
  const auto add = [&](int64_t v, auto at) HWY_ATTR {
    const FloatVector left = at.load(x);
    for (int64_t r = 0; r < kRowsTogether; ++r) sums[r][v] = hn::MulAdd(left, at.load(decoded[r]), sums[r][v]);
  };
  int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials)
    for (int64_t v = 0; v < kPartialVectors; ++v) add(v, Whole{i + v * kLanes});
  if (i < count)
    for (int64_t v = 0; v < kPartialVectors; ++v)
      add(v, Partial{i + v * kLanes, std::clamp<int64_t>(count - i - v * kLanes, 0, kLanes)});
  for (int64_t r = 0; r < kRowsTogether; ++r)
    for (int64_t v = 0; v < kPartialVectors; ++v) hn::Store(sums[r][v], d, partials[r] + v * kLanes);
}

// Rows [first, last) of W against up to seven rows of x.
HWY_INLINE void few_rows(const Tensor& x, const Tensor& weight, const Tensor& acc, const Tensor& y, DecodeRow decode,
                         int64_t first, int64_t last) {
  alignas(64) float decoded[kRowsTogether][kStretch];
  const int64_t rows = x.shape[0], k = weight.shape[1];
  for (int64_t n = first; n < last; n += kRowsTogether) {
    const int64_t together = std::min(kRowsTogether, last - n);
    const std::byte* stored[kRowsTogether];
    for (int64_t r = 0; r < kRowsTogether; ++r) stored[r] = weight.row(n + std::min(r, together - 1));
    alignas(64) float partials[kFewRows][kRowsTogether][kPartials];
    std::fill_n(&partials[0][0][0], rows * kRowsTogether * kPartials, 0.0f);
    for (int64_t k0 = 0; k0 < k; k0 += kStretch) {
      const int64_t count = std::min(kStretch, k - k0);
      for (int64_t r = 0; r < kRowsTogether; ++r) decode(stored[r], k0, count, decoded[r]);
      for (int64_t i = 0; i < rows; ++i) add_products(count, x.f32() + i * x.strides[0] + k0, decoded, partials[i]);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t r = 0; r < together; ++r)
        y.f32()[i * y.strides[0] + n + r] =
            tree_sum(partials[i][r]) + (acc.present() ? acc.f32()[i * acc.strides[0] + n + r] : 0.0f);
  }
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
