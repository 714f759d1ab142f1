// 16-bit floating point to F32, exact, in integer arithmetic and one multiplication: the same bits on every machine.
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
