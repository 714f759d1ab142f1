#include "ops/row_magnitude.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/row_magnitude.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// acc may be null, and may be y.
void scale_columns_row(const float* z, const float* ratio, const float* acc, int64_t n, float* y) {
  if (acc == nullptr)
    for_vectors(n, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(ratio), at.load(z)), y); });
  else
    for_vectors(n, [&](auto at) HWY_ATTR { at.store(hn::MulAdd(at.load(ratio), at.load(z), at.load(acc)), y); });
}

// One row: sums += dy z, dz = ratio dy.
void magnitude_grad_row(const float* z, const float* dy, const float* ratio, int64_t n, float* sums, float* dz) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector d = at.load(dy);
    at.store(hn::MulAdd(d, at.load(z), at.load(sums)), sums);
    at.store(hn::Mul(at.load(ratio), d), dz);
  });
}

// norm [n] of columns of wa, ba and b, `ranks` rows each.
void row_norms(const float* squares, const float* wa, int64_t wa_stride, const float* ba, int64_t ba_stride,
               const float* b, int64_t b_stride, int64_t ranks, float scale, float least, int64_t n, float* norm) {
  const FloatVector two = hn::Set(Floats(), 2.0f), s = hn::Set(Floats(), scale);
  for_vectors(n, [&](auto at) HWY_ATTR {
    FloatVector change = hn::Zero(Floats());
    for (int64_t r = 0; r < ranks; ++r) {
      const FloatVector both = hn::MulAdd(s, at.load(ba + r * ba_stride), hn::Mul(two, at.load(wa + r * wa_stride)));
      change = hn::MulAdd(at.load(b + r * b_stride), both, change);
    }
    const FloatVector square = hn::MulAdd(s, change, at.load(squares));
    at.store(hn::Sqrt(hn::Max(square, hn::Set(Floats(), least * least))), norm);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(scale_columns_row);
HWY_EXPORT(magnitude_grad_row);
HWY_EXPORT(row_norms);

constexpr int64_t kTaskColumns = 64;

// m / norm, once for all rows.
const float* ratios(const Tensor& m, const Tensor& norm, KernelContext& context) {
  auto* const ratio = reinterpret_cast<float*>(context.scratch.data());
  for (int64_t n = 0; n < m.shape[0]; ++n) ratio[n] = m.f32()[n] / norm.f32()[n];
  return ratio;
}

}  // namespace

void row_magnitude(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows z(in[0]), y(out[0]);
  const bool accumulate = in[3].present();
  const Rows acc(accumulate ? in[3] : out[0]);
  const float* const ratio = ratios(in[1], in[2], context);
  const auto row = HWY_DYNAMIC_DISPATCH(scale_columns_row);
  for_rows(context.pool, y.rows, y.columns,
           [&](int64_t r) { row(z.row(r), ratio, accumulate ? acc.row(r) : nullptr, y.columns, y.row(r)); });
}

void row_magnitude_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows z(in[0]), dy(in[3]), dz(out[1]);
  const float *norm = in[2].f32(), *acc = in[4].present() ? in[4].f32() : nullptr;
  float* const dm = out[0].f32();
  const float* const ratio = ratios(in[1], in[2], context);
  float* const sums = reinterpret_cast<float*>(context.scratch.data()) + dz.columns;
  const int64_t runs = runs_of(dz.rows);
  const auto row = HWY_DYNAMIC_DISPATCH(magnitude_grad_row);
  context.pool.run(runs, [&](int64_t run, int) {
    float* const sum = sums + run * dz.columns;
    std::fill_n(sum, dz.columns, 0.0f);
    for (int64_t t = run * kRunRows; t < std::min(dz.rows, (run + 1) * kRunRows); ++t)
      row(z.row(t), dy.row(t), ratio, dz.columns, sum, dz.row(t));
  });
  for (int64_t n = 0; n < dz.columns; ++n) {
    float sum = 0.0f;
    for (int64_t run = 0; run < runs; ++run) sum += sums[run * dz.columns + n];
    dm[n] = (acc == nullptr ? 0.0f : acc[n]) + sum / norm[n];
  }
}

int64_t row_magnitude_scratch(const Op&, std::span<const Tensor> in, std::span<const Tensor>, int) {
  return in[1].shape[0] * static_cast<int64_t>(sizeof(float));
}

int64_t row_magnitude_grad_scratch(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, int threads) {
  return (1 + runs_of(in[0].shape[0])) * row_magnitude_scratch(op, in, out, threads);
}

void adapted_row_norms(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const float scale = static_cast<const AdaptedRowNorms&>(op).scale;
  const Rows wa(in[2]), ba(in[3]), b(in[4]);
  const auto norms = HWY_DYNAMIC_DISPATCH(row_norms);
  context.pool.run((b.columns + kTaskColumns - 1) / kTaskColumns, [&](int64_t task, int) {
    const int64_t first = task * kTaskColumns, count = std::min(kTaskColumns, b.columns - first);
    norms(in[1].f32() + first, wa.data + first, wa.stride, ba.data + first, ba.stride, b.data + first, b.stride, b.rows,
          scale, kLeastRowNorm, count, out[0].f32() + first);
  });
}

}  // namespace patina::cpu
#endif  // HWY_ONCE
