// IQ4_XS: super-blocks of 256 values in 8 groups of 32. F16 d scales six-bit group scales s;
// value = (d * (s - 32)) * kIq4Values[q], q a four-bit code. The low four bits of scale g are a half of byte g / 2, the
// low half first; its top two bits are bits 2g, 2g+1 of a little-endian 16-bit word. Each group has 16 bytes of codes:
// low halves, then high halves.
#if defined(PATINA_QUANT_IQ4_XS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_IQ4_XS_INL_H_
#undef PATINA_QUANT_IQ4_XS_INL_H_
#else
#define PATINA_QUANT_IQ4_XS_INL_H_
#endif

#include <cstdint>

#include "quant/iq4_nl-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

struct IQ4_XS {
  static constexpr int kValues = 256;
  uint8_t d[2];
  uint8_t scale_tops[2];
  uint8_t scale_halves[4];
  uint8_t q[128];

  static void decode(const IQ4_XS& block, float* HWY_RESTRICT out) {
    const float d = load_scale(block.d);
    const uint32_t tops = load_u16(block.scale_tops), halves = load_u32(block.scale_halves);
    for (int group = 0; group < 8; ++group) {
      const uint32_t s = (halves >> 4 * group & 15) | (tops >> 2 * group & 3) << 4;
      const float scale = d * static_cast<float>(static_cast<int32_t>(s) - 32);
      store_looked_up(hn::Set(Floats(), scale), kIq4Values, block.q + 16 * group, out + 32 * group);
    }
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
