// MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 values, an exponent e and 32 codes q of four bits (sign, two bits
// of exponent, one of mantissa); value = 2^(e - 128) * kFp4Doubled[q], a table of twice the numbers that the codes are.
// Codes are laid out as in IQ4_NL. As in the gguf package, e = 255 is an exponent like any other, and code 8 is +0.
#if defined(PATINA_QUANT_MXFP4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_MXFP4_INL_H_
#undef PATINA_QUANT_MXFP4_INL_H_
#else
#define PATINA_QUANT_MXFP4_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

alignas(16) inline constexpr int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct MXFP4 {
  static constexpr int kValues = 32;
  uint8_t e;
  uint8_t q[16];

  static void decode(const MXFP4& block, float* HWY_RESTRICT out) {
    // 2^(e - 128): a subnormal number where e < 2.
    const uint32_t bits = block.e < 2 ? 0x00200000u << block.e : static_cast<uint32_t>(block.e - 1) << 23;
    store_looked_up(hn::Set(Floats(), std::bit_cast<float>(bits)), kFp4Doubled, block.q, out);
  }
};

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
