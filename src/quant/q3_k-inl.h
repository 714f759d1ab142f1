// Q3_K: super-blocks of 256 values in 16 groups of 16. F16 d scales six-bit group scales s;
// value = (d * (s - 32)) * (q - 4), q a three-bit code. The low two bits of codes are laid out as in Q2_K; the third
// bit of value 32 g + i is bit g of byte i of a 32-byte plane.
#if defined(PATINA_QUANT_Q3_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q3_K_INL_H_
#undef PATINA_QUANT_Q3_K_INL_H_
#else
#define PATINA_QUANT_Q3_K_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct Q3_K {
  static constexpr int kValues = 256;
  uint8_t high[32];
  uint8_t low[64];
  uint8_t scales[12];
  uint8_t d[2];

  // The low four bits of scales 0..7 and 8..15 are the low and high halves of bytes 0..7; the top two bits of scales
  // 4 g .. 4 g + 3 are bits 2g, 2g+1 of bytes 8..11. Four scales at a time, one in each byte of a word.
  static void unpack_scales(const uint8_t* packed, uint8_t* bytes) {
    const uint32_t w0 = load_u32(packed), w1 = load_u32(packed + 4), tops = load_u32(packed + 8);
    const uint32_t words[4] = {(w0 & 0x0f0f0f0f) | (tops << 4 & 0x30303030),  //
                               (w1 & 0x0f0f0f0f) | (tops << 2 & 0x30303030),  //
                               (w0 >> 4 & 0x0f0f0f0f) | (tops & 0x30303030),  //
                               (w1 >> 4 & 0x0f0f0f0f) | (tops >> 2 & 0x30303030)};
    store_words(words, bytes);
  }

  static void decode(const Q3_K& block, float* HWY_RESTRICT out) {
    uint8_t scale_codes[16];
    unpack_scales(block.scales, scale_codes);
    const GroupScales scale(load_scale(block.d), scale_codes, 32);
    const CodeVector three = hn::Set(Codes(), 3), four = hn::Set(Codes(), 4);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; i += kStep) {
        CodeVector low = load_codes(block.low + 32 * half + i), high = load_codes(block.high + i);
        high = half == 0 ? shift_up<2>(high) : shift_down<2>(high);
        for (int g = 0; g < 4; ++g) {
          const CodeVector q = hn::Or(hn::And(low, three), hn::And(high, four));
          store_scaled(scale[8 * half + 2 * g + i / 16], hn::Sub(q, four), out + 128 * half + 32 * g + i);
          low = shift_down<2>(low);
          high = shift_down<1>(high);
        }
      }
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
