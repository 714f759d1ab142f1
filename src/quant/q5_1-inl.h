// Q5_1: blocks of 32 values, F16 scale d and minimum m, 32 five-bit codes q; value = d * q + m.
// Codes are laid out as in Q5_0.
#if defined(PATINA_QUANT_Q5_1_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q5_1_INL_H_
#undef PATINA_QUANT_Q5_1_INL_H_
#else
#define PATINA_QUANT_Q5_1_INL_H_
#endif

#include <cstdint>

#include "quant/q5_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q5_1 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t m[2];
  uint8_t high[4];
  uint8_t low[16];

  static void decode(const Q5_1& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    const FloatVector m = hn::Set(Floats(), load_scale(block.m));
    for (int i = 0; i < 16; i += kStep) {
      const CodeVector low = load_codes(block.low + i);
      store_scaled(d, hn::Or(low_half(low), fifth_bits(block.high, i)), m, out + i);
      store_scaled(d, hn::Or(high_half(low), fifth_bits(block.high, i + 16)), m, out + i + 16);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
