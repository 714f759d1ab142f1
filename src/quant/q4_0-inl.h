// Q4_0: blocks of 32 values, one F16 scale d and 32 four-bit codes q; value = d * (q - 8).
// The low halves of the 16 bytes are values 0..15, the high halves values 16..31.
#if defined(PATINA_QUANT_Q4_0_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q4_0_INL_H_
#undef PATINA_QUANT_Q4_0_INL_H_
#else
#define PATINA_QUANT_Q4_0_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q4_0 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t q[16];

  static void decode(const Q4_0& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    const CodeVector eight = hn::Set(Codes(), 8);
    for (int i = 0; i < 16; i += kStep) {
      const CodeVector q = load_codes(block.q + i);
      store_scaled(d, hn::Sub(low_half(q), eight), out + i);
      store_scaled(d, hn::Sub(high_half(q), eight), out + i + 16);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
