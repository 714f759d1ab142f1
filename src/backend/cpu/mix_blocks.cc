#include "ops/mix_blocks.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/mix_blocks.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/mix_blocks.h"
#include "backend/cpu/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// Output blocks [i, i + kOutputs) of one row at the columns `at`: each vector of x is loaded once for all of them.
template <int64_t kOutputs, typename At>
HWY_INLINE void mix_tile(const BlockMix& mix, const float* x, const float* acc, float* y, int64_t i, At at) {
  FloatVector sums[kOutputs];
  for (int64_t o = 0; o < kOutputs; ++o)
    sums[o] = acc == nullptr ? hn::Zero(Floats()) : at.load(acc + (i + o) * mix.columns);
  for (int64_t p = 0; p < mix.from; ++p) {
    const FloatVector v = at.load(x + p * mix.columns);
    for (int64_t o = 0; o < kOutputs; ++o)
      sums[o] = hn::MulAdd(hn::Set(Floats(), mix.w[(i + o) * mix.row_stride + p * mix.column_stride]), v, sums[o]);
  }
  for (int64_t o = 0; o < kOutputs; ++o) at.store(sums[o], y + (i + o) * mix.columns);
}

// acc may be null, and may be y.
void mix_row(const BlockMix& mix, const float* x, const float* acc, float* y) {
  for_vectors(mix.columns, [&](auto at) HWY_ATTR {
    int64_t i = 0;
    for (; i + 8 <= mix.to; i += 8) mix_tile<8>(mix, x, acc, y, i, at);
    for (; i + 4 <= mix.to; i += 4) mix_tile<4>(mix, x, acc, y, i, at);
    for (; i < mix.to; ++i) mix_tile<1>(mix, x, acc, y, i, at);
  });
}

// The products of kLeft blocks from `left` on and kRight from `right` on, summed over rows and columns into dw.
template <int64_t kLeft, int64_t kRight>
HWY_INLINE void correlate_tile(const BlockPairs& pairs, int64_t first, int64_t last, int64_t i, int64_t p, float* dw) {
  alignas(64) float partials[kLeft * kRight][kPartials];
  for (int64_t v = 0; v < kPartialVectors; ++v) {
    FloatVector sums[kLeft * kRight];
    for (FloatVector& sum : sums) sum = hn::Zero(Floats());
    const auto add = [&](const float* left, const float* right, auto at) HWY_ATTR {
      FloatVector r[kRight];
      for (int64_t q = 0; q < kRight; ++q) r[q] = at.load(right + (p + q) * pairs.columns);
      for (int64_t o = 0; o < kLeft; ++o) {
        const FloatVector l = at.load(left + (i + o) * pairs.columns);
        for (int64_t q = 0; q < kRight; ++q) sums[o * kRight + q] = hn::MulAdd(l, r[q], sums[o * kRight + q]);
      }
    };
    for (int64_t t = first; t < last; ++t) {
      const float *left = pairs.left + t * pairs.left_stride, *right = pairs.right + t * pairs.right_stride;
      int64_t c = v * kLanes;
      for (; c + kLanes <= pairs.columns; c += kPartials) add(left, right, Whole{c});
      if (c < pairs.columns) add(left, right, Partial{c, pairs.columns - c});
    }
    for (int64_t k = 0; k < kLeft * kRight; ++k) hn::Store(sums[k], Floats(), partials[k] + v * kLanes);
  }
  for (int64_t o = 0; o < kLeft; ++o)
    for (int64_t q = 0; q < kRight; ++q) dw[(i + o) * pairs.rights + p + q] = tree_sum(partials[o * kRight + q]);
}

// dw [lefts, rights] of the rows [first, last).
void correlate_blocks(const BlockPairs& pairs, int64_t first, int64_t last, float* dw) {
  int64_t i = 0;
  for (; i + 2 <= pairs.lefts; i += 2) {
    int64_t p = 0;
    for (; p + 4 <= pairs.rights; p += 4) correlate_tile<2, 4>(pairs, first, last, i, p, dw);
    for (; p < pairs.rights; ++p) correlate_tile<2, 1>(pairs, first, last, i, p, dw);
  }
  for (; i < pairs.lefts; ++i)
    for (int64_t p = 0; p < pairs.rights; ++p) correlate_tile<1, 1>(pairs, first, last, i, p, dw);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(mix_row);
HWY_EXPORT(correlate_blocks);

}  // namespace

void mix_blocks(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const bool transposed = static_cast<const MixBlocks&>(op).transposed;
  const Rows x(in[0]), y(out[0]);
  const Tensor& w = in[1];
  const bool accumulate = in[2].present();
  const Rows acc(accumulate ? in[2] : out[0]);
  BlockMix mix{w.f32(), w.strides[0], w.strides[1], w.shape[0], w.shape[1], 0};
  if (transposed) {
    std::swap(mix.row_stride, mix.column_stride);
    std::swap(mix.to, mix.from);
  }
  mix.columns = x.columns / mix.from;
  const auto row = HWY_DYNAMIC_DISPATCH(mix_row);
  for_rows(context.pool, y.rows, y.columns,
           [&](int64_t r) { row(mix, x.row(r), accumulate ? acc.row(r) : nullptr, y.row(r)); });
}

int64_t mix_blocks_grad_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, int) {
  return runs_of(in[0].shape[0]) * out[0].shape.elements() * static_cast<int64_t>(sizeof(float));
}

void mix_blocks_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows left(in[0]), right(in[1]), dw(out[0]);
  const BlockPairs pairs{left.data, left.stride, right.data, right.stride, dw.rows, dw.columns, left.columns / dw.rows};
  const int64_t runs = runs_of(left.rows), elements = dw.rows * dw.columns;
  auto* const parts = reinterpret_cast<float*>(context.scratch.data());
  const auto correlate = HWY_DYNAMIC_DISPATCH(correlate_blocks);
  context.pool.run(runs, [&](int64_t run, int) {
    correlate(pairs, run * kRunRows, std::min(left.rows, (run + 1) * kRunRows), parts + run * elements);
  });
  for (int64_t i = 0; i < dw.rows; ++i)
    for (int64_t p = 0; p < dw.columns; ++p) {
      float sum = in[2].present() ? Rows(in[2]).row(i)[p] : 0.0f;
      for (int64_t run = 0; run < runs; ++run) sum += parts[run * elements + i * dw.columns + p];
      dw.row(i)[p] = sum;
    }
}

}  // namespace patina::cpu
#endif  // HWY_ONCE
