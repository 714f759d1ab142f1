#include "ops/rope.h"

#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rope.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// The two halves, [half] each, of one head; y may be x. Products of cosines are rounded first, then those of sines are
// fused in.
void rope_head(const float* x, const float* cosines, const float* sines, bool inverse, int64_t half, float* y) {
  const FloatVector sign = hn::Set(Floats(), inverse ? -1.0f : 1.0f);
  for_vectors(half, [&](auto at) HWY_ATTR {
    const FloatVector c = at.load(cosines), s = hn::Mul(at.load(sines), sign);
    const FloatVector a = at.load(x), b = at.load(x + half);
    at.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), y);
    at.store(hn::MulAdd(a, s, hn::Mul(b, c)), y + half);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(rope_head);

}  // namespace

void rope(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& rotation = static_cast<const Rope&>(op);
  const Rows x(in[0]), table(in[2]), y(out[0]);
  const int64_t half = table.columns / 2, rest = rotation.width - 2 * half;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rope_head);
  for_rows(context.pool, x.rows, x.columns, [&](int64_t t) {
    const float* angles = table.row(row_index(in[1], t, table.rows));
    for (int64_t head = 0; head < x.columns; head += rotation.width) {
      const float* from = x.row(t) + head;
      float* to = y.row(t) + head;
      rotate(from, angles, angles + half, rotation.inverse, half, to);
      if (from != to) std::memcpy(to + 2 * half, from + 2 * half, static_cast<size_t>(rest) * sizeof(float));
    }
  });
}

}  // namespace patina::cpu
#endif
