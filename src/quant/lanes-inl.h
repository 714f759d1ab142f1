// The few vector pieces that every block type is decoded with. Blocks are walked 16 values at a time, in as many
// vectors as the instruction set needs for that.
#if defined(PATINA_QUANT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PATINA_QUANT_LANES_INL_H_
#undef PATINA_QUANT_LANES_INL_H_
#else
#define PATINA_QUANT_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quant/half.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Ints = hn::Rebind<int32_t, Floats>;
using FloatVector = hn::Vec<Floats>;
using IntVector = hn::Vec<Ints>;

// Values in a FloatVector: a constant wherever vectors have a fixed length.
HWY_INLINE int lanes() { return static_cast<int>(hn::Lanes(Floats())); }

inline IntVector load_codes(const uint8_t* bytes) {
  return hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<uint8_t, Ints>(), bytes));
}
inline IntVector load_codes(const int8_t* bytes) {
  return hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<int8_t, Ints>(), bytes));
}
inline IntVector low_half(IntVector codes) { return hn::And(codes, hn::Set(Ints(), 15)); }
inline IntVector high_half(IntVector codes) { return hn::ShiftRight<4>(codes); }

// out[lanes] = scale * codes, and scale * codes + offset: two roundings, never a fused operation.
inline void store_scaled(FloatVector scale, IntVector codes, float* HWY_RESTRICT out) {
  hn::StoreU(hn::Mul(scale, hn::ConvertTo(Floats(), codes)), Floats(), out);
}
inline void store_scaled(FloatVector scale, IntVector codes, FloatVector offset, float* HWY_RESTRICT out) {
  hn::StoreU(hn::Add(hn::Mul(scale, hn::ConvertTo(Floats(), codes)), offset), Floats(), out);
}

// A block's F16 scale; the vector conversion gives the bits of f32_from_f16.
inline float load_scale(const uint8_t* bytes) {
#if HWY_TARGET == HWY_SCALAR
  return f32_from_f16(load_u16(bytes));
#else
  const hn::CappedTag<float, 4> floats;
  const hn::Rebind<hwy::float16_t, decltype(floats)> halves;
  const hn::Rebind<uint16_t, decltype(floats)> words;
  return hn::GetLane(hn::PromoteTo(floats, hn::BitCast(halves, hn::Set(words, load_u16(bytes)))));
#endif
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
