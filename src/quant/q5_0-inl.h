// Q5_0: blocks of 32 values, one F16 scale d and 32 five-bit codes q; value = d * (q - 16).
// The low halves of the 16 bytes are values 0..15, the high halves values 16..31; the fifth bit of value i is bit i of
// a little-endian 32-bit word.
#if defined(PATINA_QUANT_Q5_0_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q5_0_INL_H_
#undef PATINA_QUANT_Q5_0_INL_H_
#else
#define PATINA_QUANT_Q5_0_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

// The fifth bits of values first, first + 1 .. of Q5_0 and Q5_1, in place at bit 4. At least 8 bytes can be read from
// `bits` + 2: the codes follow.
inline CodeVector fifth_bits(const uint8_t* bits, int first) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Codes(), static_cast<uint8_t>((bits[first / 8] >> first % 8 & 1) << 4));
#else
  return hn::IfThenElseZero(hn::LoadMaskBits(Codes(), bits + first / 8), hn::Set(Codes(), 16));
#endif
}

struct Q5_0 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t high[4];
  uint8_t low[16];

  static void decode(const Q5_0& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    const CodeVector sixteen = hn::Set(Codes(), 16);
    for (int i = 0; i < 16; i += kStep) {
      const CodeVector low = load_codes(block.low + i);
      store_scaled(d, hn::Sub(hn::Or(low_half(low), fifth_bits(block.high, i)), sixteen), out + i);
      store_scaled(d, hn::Sub(hn::Or(high_half(low), fifth_bits(block.high, i + 16)), sixteen), out + i + 16);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
