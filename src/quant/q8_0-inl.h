// Q8_0: blocks of 32 values, one F16 scale d and 32 signed bytes q; value = d * q.
#if defined(PATINA_QUANT_Q8_0_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q8_0_INL_H_
#undef PATINA_QUANT_Q8_0_INL_H_
#else
#define PATINA_QUANT_Q8_0_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q8_0 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  int8_t q[32];

  static void decode(const Q8_0& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    for (int i = 0; i < 32; i += kStep) store_scaled(d, load_codes(block.q + i), out + i);
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
