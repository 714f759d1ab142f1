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
#include <cstring>

#include "quant/half.h"

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Ints = hn::Rebind<int32_t, Floats>;
using FloatVector = hn::Vec<Floats>;

// Values in a FloatVector: a constant wherever vectors have a fixed length.
HWY_INLINE int lanes() { return static_cast<int>(hn::Lanes(Floats())); }

// Codes are put together as bytes, where an operation costs a quarter of what it costs on F32 lanes, and are signed
// bytes in the end: no code of any type is larger.
using Codes = hn::CappedTag<uint8_t, 16>;
using CodeVector = hn::Vec<Codes>;
// Codes in a vector: the stride of every loop over codes.
inline constexpr int kStep = HWY_TARGET == HWY_SCALAR ? 1 : 16;

inline CodeVector load_codes(const void* bytes) { return hn::LoadU(Codes(), static_cast<const uint8_t*>(bytes)); }

// Codes moved by kBits towards their low or high bits. Bits of the neighbour may come in: a mask must follow. (Bytes
// have no shift of their own on x86.)
template <int kBits>
HWY_INLINE CodeVector shift_down(CodeVector codes) {
#if HWY_TARGET == HWY_SCALAR
  return hn::ShiftRight<kBits>(codes);
#else
  return hn::BitCast(Codes(), hn::ShiftRight<kBits>(hn::BitCast(hn::Repartition<uint16_t, Codes>(), codes)));
#endif
}
template <int kBits>
HWY_INLINE CodeVector shift_up(CodeVector codes) {
#if HWY_TARGET == HWY_SCALAR
  return hn::ShiftLeft<kBits>(codes);
#else
  return hn::BitCast(Codes(), hn::ShiftLeft<kBits>(hn::BitCast(hn::Repartition<uint16_t, Codes>(), codes)));
#endif
}

inline CodeVector low_half(CodeVector codes) { return hn::And(codes, hn::Set(Codes(), 15)); }
inline CodeVector high_half(CodeVector codes) { return hn::ShiftRight<4>(codes); }

// Calls store(values, i) with F32 vectors that hold codes i, i + 1 ..
template <typename Vector, typename Store>
HWY_INLINE void for_each_part(Vector codes, int first, Store store) {
  const hn::DFromV<Vector> d;
  if constexpr (hn::MaxLanes(d) == hn::MaxLanes(Floats())) {
    const auto bytes = hn::BitCast(hn::RebindToSigned<decltype(d)>(), codes);
    store(hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), bytes)), first);
  }
#if HWY_TARGET != HWY_SCALAR
  else {
    const hn::Half<decltype(d)> half;
    for_each_part(hn::LowerHalf(half, codes), first, store);
    for_each_part(hn::UpperHalf(half, codes), first + static_cast<int>(hn::MaxLanes(half)), store);
  }
#endif
}

// out[0..kStep) = scale * codes, and scale * codes + offset: two roundings, never a fused operation.
HWY_INLINE void store_scaled(FloatVector scale, CodeVector codes, float* HWY_RESTRICT out) {
  for_each_part(codes, 0, [&](FloatVector q, int i) HWY_ATTR { hn::StoreU(hn::Mul(scale, q), Floats(), out + i); });
}
HWY_INLINE void store_scaled(FloatVector scale, CodeVector codes, FloatVector offset, float* HWY_RESTRICT out) {
  for_each_part(codes, 0, [&](FloatVector q, int i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::Mul(scale, q), offset), Floats(), out + i);
  });
}

// 16 bytes from four words, put together in a register: a load of the four stored words would wait for them.
inline void store_words(const uint32_t* words, uint8_t* bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(bytes, words, 16);
#else
  const hn::Repartition<uint64_t, Codes> pairs;
  const auto pair = [&](int i) HWY_ATTR { return hn::Set(pairs, words[i] | uint64_t{words[i + 1]} << 32); };
  hn::StoreU(hn::BitCast(Codes(), hn::InterleaveLower(pair(0), pair(2))), Codes(), bytes);
#endif
}

// factor * codes of 16 groups.
class GroupScales {
 public:
  GroupScales(float factor, const uint8_t* codes, uint8_t offset = 0) {
    for (int i = 0; i < 16; i += kStep)
      store_scaled(hn::Set(Floats(), factor), hn::Sub(load_codes(codes + i), hn::Set(Codes(), offset)), scales_ + i);
    // Without this GCC 12 takes each scale out of the vector above with two shuffles instead of loading it: Q2_K takes
    // 1.5 times, Q6_K 1.35 times as long.
    asm volatile("" : "+m"(scales_));
  }
  FloatVector operator[](int group) const { return hn::Set(Floats(), scales_[group]); }

 private:
  float scales_[16];
};

// table[code], for codes below 16.
inline CodeVector look_up(const int8_t* HWY_RESTRICT table, CodeVector codes) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Codes(), static_cast<uint8_t>(table[hn::GetLane(codes)]));
#else
  return hn::TableLookupBytes(load_codes(table), codes);
#endif
}
// out[0..15] = scale * table[low half of bytes[i]], out[16..31] = scale * table[high half of bytes[i]].
inline void store_looked_up(FloatVector scale, const int8_t* HWY_RESTRICT table, const uint8_t* HWY_RESTRICT bytes,
                            float* HWY_RESTRICT out) {
  for (int i = 0; i < 16; i += kStep) {
    const CodeVector q = load_codes(bytes + i);
    store_scaled(scale, look_up(table, low_half(q)), out + i);
    store_scaled(scale, look_up(table, high_half(q)), out + i + 16);
  }
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
