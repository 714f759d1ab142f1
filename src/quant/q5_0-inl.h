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

// The fifth bits of values first + i .. of Q5_0 and Q5_1, in place at bit 4; i < 16 and first is 0 or 16.
inline IntVector fifth_bits(uint32_t word, int first, int i) {
  const uint32_t aligned = first == 0 ? word << 4 : word >> 12;
  return hn::And(hn::Shr(hn::Set(Ints(), static_cast<int32_t>(aligned)), hn::Iota(Ints(), i)), hn::Set(Ints(), 16));
}

struct Q5_0 {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t high[4];
  uint8_t low[16];

  static void decode(const Q5_0& block, float* HWY_RESTRICT out) {
    const FloatVector d = hn::Set(Floats(), load_scale(block.d));
    const IntVector sixteen = hn::Set(Ints(), 16);
    const uint32_t high = load_u32(block.high);
    for (int i = 0; i < 16; i += lanes()) {
      const IntVector low = load_codes(block.low + i);
      store_scaled(d, hn::Sub(hn::Or(low_half(low), fifth_bits(high, 0, i)), sixteen), out + i);
      store_scaled(d, hn::Sub(hn::Or(high_half(low), fifth_bits(high, 16, i)), sixteen), out + i + 16);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
