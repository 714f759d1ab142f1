#include "support/random_weight.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "quant/block_scales.h"

namespace patina {

namespace {

uint16_t f16(uint32_t sign, int exponent, uint32_t mantissa) {
  return static_cast<uint16_t>((sign & 1) << 15 | static_cast<uint32_t>(exponent + 15) << 10 | (mantissa & 0x3ff));
}

}  // namespace

std::vector<DType> block_types() {
  std::vector<DType> types;
  for (const DTypeInfo& row : all_dtypes())
    if (row.block_values > 1) types.push_back(row.dtype);
  return types;
}

std::vector<std::byte> random_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed) {
  const RandomStream random(seed, RandomUse::kTest, 1);
  std::vector<std::byte> bytes(static_cast<size_t>(rows * bytes_of(dtype, columns)));
  const auto put = [&](size_t at, const auto& number) { std::memcpy(bytes.data() + at, &number, sizeof number); };
  const size_t step = static_cast<size_t>(info(dtype).block_bytes);
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
    for (size_t i = 0; i < bytes.size() / step; ++i) {
      const float value = static_cast<float>(random.normal(i));
      const auto word = random.bits(i);
      if (dtype == DType::kF32) put(i * step, value);
      if (dtype == DType::kBF16) put(i * step, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
      if (dtype == DType::kF16) put(i * step, f16(word[0], -static_cast<int>(word[1] % 3), word[2]));
    }
    return bytes;
  }
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.bits(i)[0]);
  if (dtype == DType::kMXFP4) {  // an exponent in place of a scale: 2^-4 to 2^-1, times codes up to 12
    for (size_t at = 0; at < bytes.size(); at += step) put(at, static_cast<uint8_t>(124 + random.bits(at)[1] % 4));
    return bytes;
  }
  for (const BlockScales& scales : kBlockScales) {
    if (scales.dtype != dtype) continue;
    for (size_t at = 0; at < bytes.size(); at += step)
      for (const size_t offset : scales.offsets()) {
        const auto word = random.bits(bytes.size() + at + offset);
        put(at + offset, f16(0, scales.exponent, word[0]));
      }
    return bytes;
  }
  PATINA_CHECK(false, "type {}", name(dtype));
  return {};
}

}  // namespace patina
