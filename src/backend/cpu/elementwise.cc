#include "ops/elementwise.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row-inl.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

void add_row(const float* a, const float* b, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR { at.store(hn::Add(at.load(a), at.load(b)), y); });
}

void scale_row(const float* x, float factor, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(x), hn::Set(Floats(), factor)), y); });
}

FloatVector sigmoid(FloatVector z) {
  const FloatVector one = hn::Set(Floats(), 1.0f);
  return hn::Div(one, hn::Add(one, exp(Floats(), hn::Neg(z))));
}

// y may be x.
void silu_row(const float* x, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector z = at.load(x);
    at.store(hn::Mul(z, sigmoid(z)), y);
  });
}

void swiglu_row(const float* gate, const float* up, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector z = at.load(gate);
    at.store(hn::Mul(hn::Mul(z, sigmoid(z)), at.load(up)), y);
  });
}

// dgate may be gate.
void swiglu_grad_row(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    const FloatVector one = hn::Set(Floats(), 1.0f);
    const FloatVector z = at.load(gate), d = at.load(dy), s = sigmoid(z);
    const FloatVector slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
    const FloatVector du = hn::Mul(d, hn::Mul(z, s));
    at.store(hn::Mul(hn::Mul(d, at.load(up)), slope), dgate);
    at.store(du, dup);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(add_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(silu_row);
HWY_EXPORT(swiglu_row);
HWY_EXPORT(swiglu_grad_row);

void copy_row(const float* x, int64_t n, float* y) { std::memcpy(y, x, static_cast<size_t>(n) * sizeof(float)); }

}  // namespace

void add(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows a(in[0]), b(in[1]), y(out[0]);
  const auto row = HWY_DYNAMIC_DISPATCH(add_row);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { row(a.row(r), b.row(r), y.columns, y.row(r)); });
}

void scale_by(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), y(out[0]);
  const float factor = *in[1].f32();
  const auto row = HWY_DYNAMIC_DISPATCH(scale_row);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { row(x.row(r), factor, y.columns, y.row(r)); });
}

void silu(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), y(out[0]);
  const auto row = HWY_DYNAMIC_DISPATCH(silu_row);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { row(x.row(r), y.columns, y.row(r)); });
}

void repeat_row(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows w(in[0]), y(out[0]);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { copy_row(w.data, y.columns, y.row(r)); });
}

void swiglu(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows gate(in[0]), up(in[1]), y(out[0]);
  const auto row = HWY_DYNAMIC_DISPATCH(swiglu_row);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { row(gate.row(r), up.row(r), y.columns, y.row(r)); });
}

void swiglu_grad(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows gate(in[0]), up(in[1]), dy(in[2]), dgate(out[0]), dup(out[1]);
  const auto row = HWY_DYNAMIC_DISPATCH(swiglu_grad_row);
  for_rows(context.pool, dy.rows, dy.columns,
           [&](int64_t r) { row(gate.row(r), up.row(r), dy.row(r), dy.columns, dgate.row(r), dup.row(r)); });
}

void gather_rows(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), y(out[0]);
  for_rows(context.pool, y.rows, y.columns,
           [&](int64_t m) { copy_row(x.row(row_index(in[1], m, x.rows)), y.columns, y.row(m)); });
}

void scatter_rows(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), y(out[0]);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) { std::fill_n(y.row(r), y.columns, 0.0f); });
  // Each row at most once, so that tasks write different rows.
  for_rows(context.pool, x.rows, x.columns,
           [&](int64_t m) { copy_row(x.row(m), x.columns, y.row(row_index(in[1], m, y.rows))); });
}

void pad_columns(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const int64_t first = static_cast<const PadColumns&>(op).first;
  const Rows x(in[0]), y(out[0]);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) {
    std::fill_n(y.row(r), first, 0.0f);
    copy_row(x.row(r), x.columns, y.row(r) + first);
    std::fill_n(y.row(r) + first + x.columns, y.columns - first - x.columns, 0.0f);
  });
}

}  // namespace patina::cpu
#endif
