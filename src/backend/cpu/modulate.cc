#include "ops/modulate.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/modulate.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// shift and acc may be null; acc may be y.
void modulate_row(const float* x, const float* factor, const float* shift, const float* acc, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR {
    FloatVector base = acc == nullptr ? hn::Zero(Floats()) : at.load(acc);
    if (shift != nullptr) base = hn::Add(base, at.load(shift));
    at.store(hn::MulAdd(at.load(x), at.load(factor), base), y);
  });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

namespace {

HWY_EXPORT(modulate_row);

}  // namespace

void modulate(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[0]), factor(in[1]), y(out[0]);
  const Rows shift(in[2].present() ? in[2] : in[1]), acc(in[4].present() ? in[4] : out[0]);
  const bool shifted = in[2].present(), accumulate = in[4].present();
  const auto row = HWY_DYNAMIC_DISPATCH(modulate_row);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) {
    const int64_t b = row_index(in[3], r, factor.rows);
    row(x.row(r), factor.row(b), shifted ? shift.row(b) : nullptr, accumulate ? acc.row(r) : nullptr, y.columns,
        y.row(r));
  });
}

}  // namespace patina::cpu
#endif
