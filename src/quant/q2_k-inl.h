// Q2_K: super-blocks of 256 values in 16 groups of 16. F16 d and dmin scale four-bit group scales s (low halves of 16
// bytes) and minima m (high halves); value = (d * s) * q - (dmin * m), q a two-bit code. Each half of 128 values has 32
// bytes of codes: bits 2g, 2g+1 of byte i belong to value 32 g + i.
#if defined(PATINA_QUANT_Q2_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q2_K_INL_H_
#undef PATINA_QUANT_Q2_K_INL_H_
#else
#define PATINA_QUANT_Q2_K_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q2_K {
  static constexpr int kValues = 256;
  uint8_t scales[16];
  uint8_t q[64];
  uint8_t d[2];
  uint8_t dmin[2];

  static void decode(const Q2_K& block, float* HWY_RESTRICT out) {
    uint8_t scale_codes[16], minimum_codes[16];
    for (int i = 0; i < 16; i += kStep) {
      const CodeVector codes = load_codes(block.scales + i);
      hn::StoreU(low_half(codes), Codes(), scale_codes + i);
      hn::StoreU(high_half(codes), Codes(), minimum_codes + i);
    }
    const GroupScales scale(load_scale(block.d), scale_codes), minus_minimum(-load_scale(block.dmin), minimum_codes);
    const CodeVector three = hn::Set(Codes(), 3);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; i += kStep) {
        CodeVector q = load_codes(block.q + 32 * half + i);
        for (int g = 0; g < 4; ++g) {
          const int group = 8 * half + 2 * g + i / 16;
          store_scaled(scale[group], hn::And(q, three), minus_minimum[group], out + 128 * half + 32 * g + i);
          q = shift_down<2>(q);
        }
      }
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
