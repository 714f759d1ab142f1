// Micro-kernels of the blocked product, compiled once per instruction set.
#if defined(PATINA_BACKEND_CPU_PRODUCT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_PRODUCT_TILE_INL_H_
#undef PATINA_BACKEND_CPU_PRODUCT_TILE_INL_H_
#else
#define PATINA_BACKEND_CPU_PRODUCT_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "backend/cpu/product_job.h"
#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// A tile of C is at most kTileRows x kTileColumns: as many accumulators as the registers hold, two vectors wide. 12 x 2
// of 32 registers with AVX-512, 6 x 2 of 16 with AVX2; the portable target keeps to what a compiler can hold. Rows come
// in steps of kRowStep, so that a last panel of few rows costs little more than its rows.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kTileRows = 4, kRowStep = 4, kTileVectors = HWY_TARGET == HWY_SCALAR ? 4 : 1;
#elif HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 12, kRowStep = 4, kTileVectors = 2;
#else
constexpr int kTileRows = 6, kRowStep = 2, kTileVectors = 2;
#endif
constexpr int64_t kTileColumns = kTileVectors * kLanes;
static_assert(kTileRows <= kMaxTileRows && kMaxTileColumns % kTileColumns == 0);

// How a panel of A lies: as rows a_stride apart, or as columns of kTileRows. Whichever takes no transpose: broadcasts
// are as fast from either.
enum class Panel { kRows, kColumns };
constexpr int64_t kColumnPanel = kPassK * kTileRows;        // floats from one panel of columns to the next
constexpr int64_t kColumnPanels = kColumnRows / kTileRows;  // packed together

template <Panel kPanel, int kRows, int kVectors>
HWY_INLINE void full_tile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT b,
                          const float* acc, int64_t acc_stride, float* c, int64_t c_stride) {
  const int64_t row = kPanel == Panel::kRows ? a_stride : 1;
  constexpr int64_t kStep = kPanel == Panel::kRows ? 1 : kTileRows;
  const Floats d;
  FloatVector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = acc != nullptr ? hn::LoadU(d, acc + r * acc_stride + v * kLanes) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    FloatVector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * kTileColumns + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const FloatVector left = hn::Set(d, a[r * row + k * kStep]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kLanes);
}

// A tile of whole row steps, one vector or kTileVectors wide.
template <Panel kPanel, int kRows = kTileRows>
HWY_INLINE void whole_tile(int64_t depth, const float* a, int64_t a_stride, const float* b, const float* acc,
                           int64_t acc_stride, float* c, int64_t c_stride, int64_t rows, int64_t columns) {
  if constexpr (kRows > kRowStep) {
    if (rows <= kRows - kRowStep) {
      whole_tile<kPanel, kRows - kRowStep>(depth, a, a_stride, b, acc, acc_stride, c, c_stride, rows, columns);
      return;
    }
  }
  if (columns > kLanes)
    full_tile<kPanel, kRows, kTileVectors>(depth, a, a_stride, b, acc, acc_stride, c, c_stride);
  else
    full_tile<kPanel, kRows, 1>(depth, a, a_stride, b, acc, acc_stride, c, c_stride);
}

// C tile = acc (zeros where it is null) + A panel . B panel. Tiles at the edge go through a whole tile of their own.
template <Panel kPanel>
HWY_NOINLINE void tile(int64_t depth, const float* a, int64_t a_stride, const float* b, const float* acc,
                       int64_t acc_stride, float* c, int64_t c_stride, int64_t rows, int64_t columns) {
  if (rows % kRowStep == 0 && (columns == kTileColumns || columns == kLanes)) {
    whole_tile<kPanel>(depth, a, a_stride, b, acc, acc_stride, c, c_stride, rows, columns);
    return;
  }
  HWY_ALIGN float edge[kTileRows * kTileColumns];
  if (acc != nullptr) {
    std::fill_n(edge, kTileRows * kTileColumns, 0.0f);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(acc + r * acc_stride, columns, edge + r * kTileColumns);
  }
  whole_tile<kPanel>(depth, a, a_stride, b, acc != nullptr ? edge : nullptr, kTileColumns, edge, kTileColumns, rows,
                     columns);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kTileColumns, columns, c + r * c_stride);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
