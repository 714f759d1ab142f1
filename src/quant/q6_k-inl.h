// Q6_K: super-blocks of 256 values in 16 groups of 16. F16 d scales signed-byte group scales s;
// value = (d * s) * (q - 32), q a six-bit code. Each half of 128 values has 64 bytes of low four bits (low halves:
// values 0..63, high halves: values 64..127) and 32 bytes of two-bit tops (bits 2g, 2g+1 of byte i belong to value 32 g
// + i).
#if defined(PATINA_QUANT_Q6_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q6_K_INL_H_
#undef PATINA_QUANT_Q6_K_INL_H_
#else
#define PATINA_QUANT_Q6_K_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q6_K {
  static constexpr int kValues = 256;
  uint8_t low[128];
  uint8_t high[64];
  uint8_t scales[16];
  uint8_t d[2];

  static void decode(const Q6_K& block, float* HWY_RESTRICT out) {
    const GroupScales scale(load_scale(block.d), block.scales);
    const CodeVector tops = hn::Set(Codes(), 48), offset = hn::Set(Codes(), 32);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; i += kStep) {
        const CodeVector a = load_codes(block.low + 64 * half + i);
        const CodeVector b = load_codes(block.low + 64 * half + 32 + i);
        const CodeVector high = load_codes(block.high + 32 * half + i);
        const CodeVector q0 = hn::Or(low_half(a), hn::And(shift_up<4>(high), tops));
        const CodeVector q1 = hn::Or(low_half(b), hn::And(shift_up<2>(high), tops));
        const CodeVector q2 = hn::Or(high_half(a), hn::And(high, tops));
        const CodeVector q3 = hn::Or(high_half(b), hn::And(shift_down<2>(high), tops));
        const int group = 8 * half + i / 16;
        float* o = out + 128 * half + i;
        store_scaled(scale[group], hn::Sub(q0, offset), o);
        store_scaled(scale[group + 2], hn::Sub(q1, offset), o + 32);
        store_scaled(scale[group + 4], hn::Sub(q2, offset), o + 64);
        store_scaled(scale[group + 6], hn::Sub(q3, offset), o + 96);
      }
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
