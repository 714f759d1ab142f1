#include "ops/outer_product.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/outer_product.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// y += sum over kCount of factors[i] * rows[i], in order: y is read and written once for all of them.
template <int kCount>
HWY_INLINE void add_multiples(const float* factors, const float* const* rows, int64_t columns, float* y) {
  FloatVector factor[kCount];
  for (int i = 0; i < kCount; ++i) factor[i] = hn::Set(Floats(), factors[i]);
  for_vectors(columns, [&](auto at) HWY_ATTR {
    FloatVector sum = at.load(y);
    for (int i = 0; i < kCount; ++i) sum = hn::MulAdd(factor[i], at.load(rows[i]), sum);
    at.store(sum, y);
  });
}

// Rows [first, last) of dx, which hold acc already. A block of W's rows stays in the second-level cache for all of
// them.
void add_outer_products(const Tensor& dy, const Tensor& weight, const Tensor& dx, int64_t first, int64_t last) {
  constexpr int64_t kBlock = 32;
  constexpr int kTogether = 8;
  const int64_t columns = dx.shape[1], n_end = weight.shape[0];
  for (int64_t n0 = 0; n0 < n_end; n0 += kBlock)
    for (int64_t t = first; t < last; ++t) {
      float* const y = dx.f32() + t * dx.strides[0];
      for (int64_t n = n0; n < std::min(n_end, n0 + kBlock); n += kTogether) {
        const int64_t count = std::min<int64_t>(kTogether, n_end - n);
        float factors[kTogether];
        const float* rows[kTogether];
        for (int64_t i = 0; i < count; ++i) {
          factors[i] = dy.f32()[t * dy.strides[0] + (n + i) * dy.strides[1]];
          rows[i] = reinterpret_cast<const float*>(weight.row(n + i));
        }
        if (count == kTogether)
          add_multiples<kTogether>(factors, rows, columns, y);
        else
          for (int64_t i = 0; i < count; ++i) add_multiples<1>(factors + i, rows + i, columns, y);
      }
    }
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(add_outer_products);

constexpr int64_t kMostTaskRows = 16;

}  // namespace

void outer_product(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Tensor &dy = in[0], &weight = in[1], &acc = in[2], &dx = out[0];
  const Rows y(dx);
  const int64_t threads = context.pool.size();
  const int64_t task_rows = std::clamp<int64_t>((y.rows + threads - 1) / threads, 1, kMostTaskRows);
  const auto add = HWY_DYNAMIC_DISPATCH(add_outer_products);
  context.pool.run((y.rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t first = task * task_rows, last = std::min(y.rows, first + task_rows);
    for (int64_t t = first; t < last; ++t) {
      if (!acc.present())
        std::fill_n(y.row(t), y.columns, 0.0f);
      else if (acc.data != dx.data)
        std::copy_n(Rows(acc).row(t), y.columns, y.row(t));
    }
    add(dy, weight, dx, first, last);
  });
}

}  // namespace patina::cpu
#endif
