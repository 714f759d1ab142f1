#include "ops/copy.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"
#include "quant/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/copy.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A task copies so many rows into columns, a cache line of each at a time: two tiles of 8 KB stay in the first-level
// cache, and the output is written in runs of 256 bytes and more. Measured on two cores (BF16, 4096 x 2560): squares
// stored where they belong 7.0 ms, a tile of columns streamed out 3.8 ms, memcpy of as many bytes 2.0 ms.
constexpr int64_t kBandRows = 128, kStripeBytes = 64;

#if HWY_TARGET != HWY_SCALAR
// A square of as many rows as a 128-bit register has lanes: each round interleaves rows half the square apart.
template <typename T>
HWY_INLINE void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  constexpr int kSide = 16 / sizeof(T);
  const hn::FixedTag<T, kSide> d;
  hn::Vec<decltype(d)> rows[kSide], mixed[kSide];
#pragma GCC unroll 8
  for (int i = 0; i < kSide; ++i) rows[i] = hn::LoadU(d, from + i * from_stride);
#pragma GCC unroll 3
  for (int rounds = 1; rounds < kSide; rounds *= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < kSide / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kSide / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kSide / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kSide; ++i) hn::StoreU(rows[i], d, to + i * to_stride);
}
#endif

// to[k * to_stride + n] = from[n * from_stride + k]
template <typename T>
void transpose_tile(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSide = 16 / sizeof(T);
  whole_rows = rows / kSide * kSide;
  whole_columns = columns / kSide * kSide;
  for (int64_t k = 0; k < whole_columns; k += kSide)
    for (int64_t n = 0; n < whole_rows; n += kSide)
      transpose_square(from + n * from_stride + k, from_stride, to + k * to_stride + n, to_stride);
#endif
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t n = k < whole_columns ? whole_rows : 0; n < rows; ++n)
      to[k * to_stride + n] = from[n * from_stride + k];
}

// Past the caches where it can be: a copy of a weight is larger than they are, and is not read back to be written.
template <typename T>
HWY_INLINE void write_run(const T* from, int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (reinterpret_cast<uintptr_t>(to) % 64 == 0 && count % lanes == 0)
    for (int64_t i = 0; i < count; i += lanes) hn::Stream(hn::Load(d, from + i), d, to + i);
  else
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}

template <typename T>
void transpose_band(const Tensor& x, int64_t first, int64_t last, T* to) {
  constexpr int64_t kStripe = kStripeBytes / sizeof(T);
  alignas(64) T rows[kBandRows * kStripe];
  alignas(64) T columns[kStripe * kBandRows];
  const std::byte* stored[kBandRows];
  for (int64_t n = first; n < last; ++n) stored[n - first] = x.row(n);
  for (int64_t k = 0; k < x.shape[1]; k += kStripe) {
    const int64_t count = std::min(kStripe, x.shape[1] - k);
    for (int64_t n = 0; n < last - first; ++n) {
      const std::byte* const from = stored[n] + k * static_cast<int64_t>(sizeof(T));
      if (count == kStripe)
        std::memcpy(rows + n * kStripe, from, kStripeBytes);
      else
        std::memcpy(rows + n * kStripe, from, static_cast<size_t>(count) * sizeof(T));
    }
    transpose_tile(rows, kStripe, last - first, count, columns, kBandRows);
    for (int64_t i = 0; i < count; ++i)
      write_run(columns + i * kBandRows, last - first, to + (k + i) * x.shape[0] + first);
  }
  hwy::FlushStream();
}

// x [N,K], whose columns are dense, into `to` [K,N].
void transpose(const Tensor& x, void* to, ThreadPool& pool) {
  const int64_t n = x.shape[0];
  const bool words = bytes_of(x.dtype, 1) == 2;
  pool.run((n + kBandRows - 1) / kBandRows, [&](int64_t task, int) {
    const int64_t first = task * kBandRows, last = std::min(n, first + kBandRows);
    if (words)
      transpose_band(x, first, last, static_cast<uint16_t*>(to));
    else
      transpose_band(x, first, last, static_cast<uint32_t*>(to));
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

HWY_EXPORT(transpose);

void transposed_copy(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  HWY_DYNAMIC_DISPATCH(transpose)(in[0], out[0].data, context.pool);
}

void f32_copy(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Tensor& weight = in[0];
  const Rows y(out[0]);
  const DecodeRow decode = decode_row(weight.dtype);
  PATINA_CHECK(decode != nullptr, "type {}", name(weight.dtype));
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { decode(weight.row(r), 0, y.columns, y.row(r)); });
}

void dense_copy(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Tensor& x = in[0];
  const Rows y(out[0]);
  const int64_t along_rows = x.strides[0], along_columns = x.strides[1];
  if (along_rows == 1 && along_columns != 1) {
    Tensor columns = x;
    columns.shape = {x.shape[1], x.shape[0]};
    columns.strides = {along_columns, along_rows};
    HWY_DYNAMIC_DISPATCH(transpose)(columns, y.data, context.pool);
    return;
  }
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) {
    const float* const from = x.f32() + r * along_rows;
    if (along_columns == 1)
      std::copy_n(from, y.columns, y.row(r));
    else
      for (int64_t c = 0; c < y.columns; ++c) y.row(r)[c] = from[c * along_columns];
  });
}

}  // namespace patina::cpu
#endif
