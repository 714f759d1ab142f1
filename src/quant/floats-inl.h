// F32, F16 and BF16: one value a block, no scale.
#if defined(PATINA_QUANT_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_FLOATS_INL_H_
#undef PATINA_QUANT_FLOATS_INL_H_
#else
#define PATINA_QUANT_FLOATS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "quant/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

inline void decode_f32(const uint8_t* HWY_RESTRICT in, int64_t count, float* HWY_RESTRICT out) {
  // Not memcpy: both pointers may be null where count is 0.
  std::copy_n(in, static_cast<size_t>(count) * sizeof(float), reinterpret_cast<uint8_t*>(out));
}

inline void decode_f16(const uint8_t* HWY_RESTRICT in, int64_t count, float* HWY_RESTRICT out) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Rebind<uint16_t, Floats> words;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  for (; i + lanes() <= count; i += lanes()) {
    // LoadU reads at any address; the bytes become words only in the register.
    const auto bits = hn::BitCast(halves, hn::LoadU(hn::Repartition<uint8_t, decltype(words)>(), in + 2 * i));
    hn::StoreU(hn::PromoteTo(Floats(), bits), Floats(), out + i);
  }
#endif
  for (; i < count; ++i) out[i] = f32_from_f16(load_u16(in + 2 * i));
}

inline void decode_bf16(const uint8_t* HWY_RESTRICT in, int64_t count, float* HWY_RESTRICT out) {
  for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(load_u16(in + 2 * i));
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
