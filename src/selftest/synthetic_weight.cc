#include "selftest/synthetic_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "measure/random_weight.h"
#include "quant/block_scales.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace patina {

namespace {

constexpr double kSize = 1.0 / 16;  // 1 / sqrt(256)

// Of types whose values are d * code - least: what the second scale is over the first, in powers of two, so that values
// lie on both sides of 0; and whether it is added, so that it must be negative.
struct LeastScale {
  DType dtype;
  int powers;
  bool is_added;
};
constexpr LeastScale kLeastScales[] = {{DType::kQ4_1, 3, true},
                                       {DType::kQ5_1, 4, true},
                                       {DType::kQ2_K, 1, false},
                                       {DType::kQ4_K, 3, false},
                                       {DType::kQ5_K, 4, false}};

// Multiplies an F16 number, or a power of two in one byte, by 2^powers.
void scale_up(std::byte* at, bool is_f16, int powers) {
  uint16_t word = 0;
  std::memcpy(&word, at, is_f16 ? 2 : 1);
  word = static_cast<uint16_t>(word + (is_f16 ? powers * 1024 : powers));
  std::memcpy(at, &word, is_f16 ? 2 : 1);
}

double root_mean_square(DType dtype, const std::vector<std::byte>& bytes, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  decode_row(dtype)(bytes.data(), 0, count, values.data());
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares / static_cast<double>(count));
}

}  // namespace

std::vector<std::byte> synthetic_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed, ThreadPool& pool) {
  const int64_t count = rows * columns;
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, count)));
  if (info(dtype).block_values == 1) {
    const OperandMemory numbers = random_floats(count, seed, pool, static_cast<float>(kSize));
    encode_row(dtype)(numbers.f32(), count, bytes.data());
    return bytes;
  }
  const OperandMemory blocks = random_stored_weight(dtype, rows, columns, seed, pool);
  std::memcpy(bytes.data(), blocks.data(), bytes.size());
  const bool is_f16 = dtype != DType::kMXFP4;
  const auto* const scales = std::ranges::find(kBlockScales, dtype, &BlockScales::dtype);
  constexpr size_t kFirst[] = {0};
  const std::span<const size_t> offsets = is_f16 ? scales->offsets() : std::span(kFirst);
  const auto for_each_block = [&](auto change) {
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info(dtype).block_bytes)) change(&bytes[at]);
  };
  for (const LeastScale& least : kLeastScales)
    if (least.dtype == dtype)
      for_each_block([&](std::byte* block) {
        scale_up(block + offsets[1], true, least.powers);
        if (least.is_added) block[offsets[1] + 1] |= std::byte{0x80};
      });
  // What is left of a mean has either sign, block by block: a common one would drown the rest in the model's sums.
  if (is_f16) {
    const RandomStream random(seed, RandomUse::kTest, 6);
    uint64_t block_index = 0;
    for_each_block([&](std::byte* block) {
      if (random.uniform(block_index++) < 0.5)
        for (const size_t offset : offsets) block[offset + 1] ^= std::byte{0x80};
    });
  }
  const int powers = static_cast<int>(std::lround(std::log2(kSize / root_mean_square(dtype, bytes, count))));
  for_each_block([&](std::byte* block) {
    for (const size_t offset : offsets) scale_up(block + offset, is_f16, powers);
  });
  return bytes;
}

}  // namespace patina
