// IQ4_NL: blocks of 32 values, one F16 scale d and 32 four-bit codes q; value = d * kIq4Values[q].
// The low halves of the 16 bytes are values 0..15, the high halves values 16..31.
#if defined(PATINA_QUANT_IQ4_NL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_IQ4_NL_INL_H_
#undef PATINA_QUANT_IQ4_NL_INL_H_
#else
#define PATINA_QUANT_IQ4_NL_INL_H_
#endif

#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

alignas(16) inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

struct IQ4_NL {
  static constexpr int kValues = 32;
  uint8_t d[2];
  uint8_t q[16];

  static void decode(const IQ4_NL& block, float* HWY_RESTRICT out) {
    store_looked_up(hn::Set(Floats(), load_scale(block.d)), kIq4Values, block.q, out);
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
