// 16-bit floating point to F32, exact, in integer arithmetic and one multiplication, and F32 to 16 bits, rounded to the
// nearest (ties to even): the same bits on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace patina {

// IEEE 754 binary16 to binary32. Exponent and mantissa move to their places in a binary32 whose exponent is then 112
// too small; the product with 2^112 is exact and normalises subnormal numbers. NaNs keep sign and payload and come out
// quiet.
inline float f32_from_f16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  bits |= magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  bits |= magnitude > 0x7c00u ? 0x00400000u : 0u;
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

inline float f32_from_bf16(uint16_t brain) { return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16); }

// NaNs come out quiet, numbers too large as infinity.
inline uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const auto with_sign = [sign](uint32_t half) { return static_cast<uint16_t>(half | sign); };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return with_sign(0x7c00u);  // 65520, half way from the largest number to the next
  // Subnormal: the sum with 0.5 has its last bit at 2^-24, the unit of binary16's subnormals, and is rounded there.
  if (magnitude < 0x38800000u)
    return with_sign(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f));
  const uint32_t rebased = magnitude - (112u << 23);
  return with_sign((rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
}

inline uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace patina
