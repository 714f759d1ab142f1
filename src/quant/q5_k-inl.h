// Q5_K: as Q4_K with five-bit codes. The fifth bit of value i of group g is bit g of byte i of a 32-byte plane.
#if defined(PATINA_QUANT_Q5_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q5_K_INL_H_
#undef PATINA_QUANT_Q5_K_INL_H_
#else
#define PATINA_QUANT_Q5_K_INL_H_
#endif

#include <cstdint>

#include "quant/q4_k-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q5_K {
  static constexpr int kValues = 256;
  uint8_t d[2];
  uint8_t dmin[2];
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t low[128];

  static void decode(const Q5_K& block, float* HWY_RESTRICT out) {
    const KScales k(block.scales, load_scale(block.d), load_scale(block.dmin));
    const CodeVector sixteen = hn::Set(Codes(), 16);
    for (int i = 0; i < 32; i += kStep) {
      CodeVector high = load_codes(block.high + i);
      for (int pair = 0; pair < 4; ++pair) {
        const FloatVector s0 = k.scale(2 * pair), m0 = k.minus_minimum(2 * pair);
        const FloatVector s1 = k.scale(2 * pair + 1), m1 = k.minus_minimum(2 * pair + 1);
        const CodeVector low = load_codes(block.low + 32 * pair + i);
        const CodeVector q0 = hn::Or(low_half(low), hn::And(shift_up<4>(high), sixteen));
        const CodeVector q1 = hn::Or(high_half(low), hn::And(shift_up<3>(high), sixteen));
        store_scaled(s0, q0, m0, out + 64 * pair + i);
        store_scaled(s1, q1, m1, out + 64 * pair + i + 32);
        high = shift_down<2>(high);
      }
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
