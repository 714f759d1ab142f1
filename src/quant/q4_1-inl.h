// Q4_1: blocks of 32 values, F16 scale d and minimum m, 32 four-bit codes q; value = d * q + m.
// The low halves of the 16 bytes are values 0..15, the high halves values 16..31.
#if defined(PATINA_QUANT_Q4_1_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q4_1_INL_H_
#undef PATINA_QUANT_Q4_1_INL_H_
#else
#define PATINA_QUANT_Q4_1_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q4_1 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t m[2];
  uint8_t q[16];

  static void decode(const Q4_1& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    const FloatVector m = hn::Set(Floats(), load_scale(block.m));
    for (int i = 0; i < 16; i += kStep) {
      const CodeVector q = load_codes(block.q + i);
      store_scaled(d, low_half(q), m, out + i);
      store_scaled(d, high_half(q), m, out + i + 16);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
