// Q4_K: super-blocks of 256 values in 8 groups of 32. F16 d and dmin scale six-bit group scales s and minima m;
// value = (d * s) * q - (dmin * m), q a four-bit code. Each 32 bytes hold two groups: low halves, then high halves.
#if defined(PATINA_QUANT_Q4_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_Q4_K_INL_H_
#undef PATINA_QUANT_Q4_K_INL_H_
#else
#define PATINA_QUANT_Q4_K_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

// The 8 scales and 8 minima of Q4_K and Q5_K, six bits each in 12 bytes: bytes 0..3 and 4..7 hold scale and minimum of
// groups 0..3 in their low six bits; bytes 8..11 hold the low four bits of scale (low half) and minimum (high half) of
// groups 4..7, whose two top bits are those of bytes 0..3 and 4..7.
class KScales {
 public:
  KScales(const uint8_t* packed, float d, float dmin) : KScales(Codes16(packed), d, dmin) {}

  FloatVector scale(int group) const { return by_d_[group]; }                       // d * s
  FloatVector minus_minimum(int group) const { return by_minus_dmin_[group + 8]; }  // -(dmin * m)

 private:
  struct Codes16 {
    uint8_t bytes[16];  // 8 scales, 8 minima
    explicit Codes16(const uint8_t* packed) {
      // Four six-bit codes at a time, one in each byte of a word.
      const uint32_t w0 = load_u32(packed), w1 = load_u32(packed + 4), w2 = load_u32(packed + 8);
      const uint32_t words[4] = {w0 & 0x3f3f3f3f, (w2 & 0x0f0f0f0f) | (w0 >> 2 & 0x30303030),  //
                                 w1 & 0x3f3f3f3f, (w2 >> 4 & 0x0f0f0f0f) | (w1 >> 2 & 0x30303030)};
      store_words(words, bytes);
    }
  };
  KScales(const Codes16& codes, float d, float dmin) : by_d_(d, codes.bytes), by_minus_dmin_(-dmin, codes.bytes) {}

  GroupScales by_d_, by_minus_dmin_;  // products of all codes; half of each is used
};

struct Q4_K {
  static constexpr int kValues = 256;
  uint8_t d[2];
  uint8_t dmin[2];
  uint8_t scales[12];
  uint8_t q[128];

  static void decode(const Q4_K& block, float* HWY_RESTRICT out) {
    const KScales k(block.scales, load_scale(block.d), load_scale(block.dmin));
    for (int pair = 0; pair < 4; ++pair) {
      const FloatVector s0 = k.scale(2 * pair), m0 = k.minus_minimum(2 * pair);
      const FloatVector s1 = k.scale(2 * pair + 1), m1 = k.minus_minimum(2 * pair + 1);
      for (int i = 0; i < 32; i += kStep) {
        const CodeVector q = load_codes(block.q + 32 * pair + i);
        store_scaled(s0, low_half(q), m0, out + 64 * pair + i);
        store_scaled(s1, high_half(q), m1, out + 64 * pair + i + 32);
      }
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
