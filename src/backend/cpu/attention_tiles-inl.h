// Tiles of attention: [rows][kLaneRows] floats, dense, in scratch. One operand lies along the lanes (its transpose is
// packed once a task), the other is walked over row by row where it lies. So every reduction, along the head's width or
// along rows, is a chain of fused multiply-adds in order within one lane: no bits depend on the width of a vector, and
// the statistics of the softmax need no sums across lanes.
#if defined(PATINA_BACKEND_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_BACKEND_CPU_ATTENTION_TILES_INL_H_
#undef PATINA_BACKEND_CPU_ATTENTION_TILES_INL_H_
#else
#define PATINA_BACKEND_CPU_ATTENTION_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/row-inl.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

using Ints = hn::Rebind<int32_t, Floats>;
using IntVector = hn::Vec<Ints>;

// Lanes are worked on in whole groups of 16, the same on every instruction set.
inline int64_t used_lanes(int64_t rows) { return (rows + 15) / 16 * 16; }

enum class Walk {
  kRows,     // out[m] = sum over i of a[m][i] * b[i]   (a's rows are walked, reduced along its columns)
  kColumns,  // out[m] += sum over i of a[i][m] * b[i]  (reduced along a's rows)
};

// M rows and N vectors of out, held in registers.
template <Walk kWalk, int M, int N>
HWY_INLINE void product_block(const float* HWY_RESTRICT a, int64_t stride, const float* HWY_RESTRICT b, int64_t depth,
                              float* HWY_RESTRICT out) {
  constexpr Floats d;
  FloatVector sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      sum[m][n] = kWalk == Walk::kRows ? hn::Zero(d) : hn::LoadU(d, out + m * kLaneRows + n * kLanes);
  for (int64_t i = 0; i < depth; ++i) {
    FloatVector row[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) row[n] = hn::LoadU(d, b + i * kLaneRows + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const FloatVector factor = hn::Set(d, kWalk == Walk::kRows ? a[m * stride + i] : a[i * stride + m]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] = hn::MulAdd(factor, row[n], sum[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) hn::StoreU(sum[m][n], d, out + m * kLaneRows + n * kLanes);
}

template <Walk kWalk, int M>
HWY_INLINE void product_rows(const float* a, int64_t stride, const float* b, int64_t depth, int64_t lanes, float* out) {
  constexpr int kVectors = kLanes == 16 ? 4 : 2;  // registers: 32 of AVX-512, 16 of the others
  int64_t n = 0;
  for (; n + kVectors * kLanes <= lanes; n += kVectors * kLanes)
    product_block<kWalk, M, kVectors>(a, stride, b + n, depth, out + n);
  if constexpr (kVectors == 4) {
    if (lanes - n == 3 * kLanes) product_block<kWalk, M, 3>(a, stride, b + n, depth, out + n);
    if (lanes - n == 2 * kLanes) product_block<kWalk, M, 2>(a, stride, b + n, depth, out + n);
    if (lanes - n == 1 * kLanes) product_block<kWalk, M, 1>(a, stride, b + n, depth, out + n);
  }
}

// The walked rows of a tile in blocks, each with the lanes that see any of its rows, in whole groups of 16. A tile that
// all lanes see is one block.
struct Blocks {
  struct Block {
    Range rows, lanes;
  };
  template <typename LanesOf>
  Blocks(int64_t rows, int64_t lane_rows, bool masked_tile, LanesOf lanes_of) : masked(masked_tile) {
    if (!masked) {
      block[count++] = {{0, rows}, {0, used_lanes(lane_rows)}};
      return;
    }
    for (int64_t begin = 0; begin < rows; begin += 16) {
      const Range some{begin, std::min(begin + 16, rows)}, lanes = lanes_of(some);
      const int64_t first = std::max<int64_t>(lanes.begin, 0) / 16 * 16, end = std::min(lanes.end, lane_rows);
      if (first < end) block[count++] = {some, {first, used_lanes(end)}};
    }
  }
  const Block* begin() const { return block; }
  const Block* end() const { return block + count; }

  bool masked;
  int count = 0;
  Block block[kWalkRows / 16];
};

// kRows: tile [rows][lanes] = x [rows][width] . along [width][lanes].
// kColumns: out [width][lanes] += x [rows][width], transposed . tile [rows][lanes].
template <Walk kWalk>
void product(const Blocks& blocks, const float* x, int64_t stride, const float* b, int64_t width, float* out) {
  constexpr bool kByRows = kWalk == Walk::kRows;
  const int64_t step = kByRows ? stride : 1;
  for (const Blocks::Block& block : blocks) {
    const int64_t walked = block.rows.end - block.rows.begin, lanes = block.lanes.end - block.lanes.begin;
    const int64_t in_tile = block.rows.begin * kLaneRows + block.lanes.begin;
    const float *from = x + block.rows.begin * stride, *other = b + (kByRows ? block.lanes.begin : in_tile);
    float* to = out + (kByRows ? in_tile : block.lanes.begin);
    const int64_t rows = kByRows ? walked : width, depth = kByRows ? width : walked;
    int64_t m = 0;
    for (; m + 6 <= rows; m += 6)
      product_rows<kWalk, 6>(from + m * step, stride, other, depth, lanes, to + m * kLaneRows);
    if (rows - m >= 4) {
      product_rows<kWalk, 4>(from + m * step, stride, other, depth, lanes, to + m * kLaneRows);
      m += 4;
    }
    for (; m < rows; ++m) product_rows<kWalk, 1>(from + m * step, stride, other, depth, lanes, to + m * kLaneRows);
  }
}

#if HWY_TARGET != HWY_SCALAR
using Quads = hn::CappedTag<float, 4>;
using QuadVector = hn::Vec<Quads>;

// Row i of four becomes column i.
HWY_INLINE void transpose(QuadVector (&rows)[4]) {
  constexpr Quads d;
  constexpr hn::Repartition<double, Quads> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[0], rows[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[2], rows[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[0], rows[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[2], rows[3]));
  rows[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

// Adds the upper half of the lanes to the lower one until four are left.
template <class D>
HWY_INLINE QuadVector fold_to_quad(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_to_quad(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// tile[c][i] = scale * x[i][c]; lanes from `rows` to the next group of 16 are zeroed.
inline void pack_transposed(const float* x, int64_t stride, int64_t rows, int64_t width, float scale, float* tile) {
  int64_t i = 0, c = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr Quads d;
  for (; i + 4 <= rows; i += 4)
    for (c = 0; c + 4 <= width; c += 4) {
      QuadVector four[4];
      for (int64_t r = 0; r < 4; ++r) four[r] = hn::Mul(hn::Set(d, scale), hn::LoadU(d, x + (i + r) * stride + c));
      transpose(four);
      for (int64_t r = 0; r < 4; ++r) hn::StoreU(four[r], d, tile + (c + r) * kLaneRows + i);
    }
#endif
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = row < i ? c : 0; column < width; ++column)
      tile[column * kLaneRows + row] = scale * x[row * stride + column];
  for (int64_t column = 0; column < width; ++column)
    std::fill(tile + column * kLaneRows + rows, tile + column * kLaneRows + used_lanes(rows), 0.0f);
}

// x[i][c] = tile[c][i] * factor[i].
inline void unpack_transposed(const float* tile, const float* factor, int64_t rows, int64_t width, float* x,
                              int64_t stride) {
  int64_t i = 0, c = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr Quads d;
  for (; i + 4 <= rows; i += 4)
    for (c = 0; c + 4 <= width; c += 4) {
      QuadVector four[4];
      for (int64_t r = 0; r < 4; ++r)
        four[r] = hn::Mul(hn::LoadU(d, factor + i), hn::LoadU(d, tile + (c + r) * kLaneRows + i));
      transpose(four);
      for (int64_t r = 0; r < 4; ++r) hn::StoreU(four[r], d, x + (i + r) * stride + c);
    }
#endif
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = row < i ? c : 0; column < width; ++column)
      x[row * stride + column] = tile[column * kLaneRows + row] * factor[row];
}

// For queries along the lanes: the keys that each sees.
struct LaneKeys {
  LaneKeys(const AttentionSequence& in, const Range& rows) : sequence(in), queries(rows) {
    const int64_t count = queries.end - queries.begin;
    for (int64_t i = 0; i < used_lanes(count); ++i) {
      const Range keys = i < count ? sequence.keys_of(queries.begin + i) : Range{0, 0};
      begin[i] = static_cast<int32_t>(keys.begin);
      end[i] = static_cast<int32_t>(keys.end);
    }
    all = {begin[count - 1], end[0]};
    any = {begin[0], end[count - 1]};
  }
  // Of the walked keys [key, key + count).
  Blocks blocks(int64_t key, int64_t count) const {
    return Blocks(count, queries.end - queries.begin, key < all.begin || all.end < key + count, [&](const Range& rows) {
      const Range seeing = sequence.queries_of({key + rows.begin, key + rows.end});
      return Range{seeing.begin - queries.begin, seeing.end - queries.begin};
    });
  }
  hn::Mask<Floats> see(int64_t lane, int64_t key) const {
    constexpr Ints d;
    const IntVector keys = hn::Set(d, static_cast<int32_t>(key));
    return hn::RebindMask(
        Floats(), hn::And(hn::Not(hn::Lt(keys, hn::LoadU(d, begin + lane))), hn::Lt(keys, hn::LoadU(d, end + lane))));
  }
  const AttentionSequence& sequence;
  const Range queries;
  int32_t begin[kLaneRows], end[kLaneRows];
  Range all, any;  // keys that all queries see, that any query sees
};

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
