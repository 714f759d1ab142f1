#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/file.h"
#include "quant/decode.h"
#include "quant/half.h"

namespace patina {
namespace {

// What the `gguf` package makes of the same values, bit for bit (tools/make_encode_goldens.py).
TEST(Encode, GoldensOfTheGgufPackage) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    SCOPED_TRACE(name(dtype));
    const std::string bytes =
        read_file(std::string(PATINA_SOURCE_DIR "/tests/quant/goldens/encode_") + std::string(name(dtype)) + ".bin");
    const size_t per_block = 32 * sizeof(float) + static_cast<size_t>(bytes_of(dtype, 32));
    ASSERT_EQ(bytes.size() % per_block, 0u);
    const size_t blocks = bytes.size() / per_block;
    ASSERT_GT(blocks, 40u);
    std::vector<float> values(blocks * 32);
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    const std::string expected = bytes.substr(values.size() * sizeof(float));
    std::string got(expected.size(), '\0');
    encode_row(dtype)(values.data(), static_cast<int64_t>(values.size()), got.data());
    const size_t block_bytes = expected.size() / blocks;
    for (size_t i = 0; i < blocks; ++i)
      EXPECT_EQ(got.substr(i * block_bytes, block_bytes), expected.substr(i * block_bytes, block_bytes))
          << "block " << i;
  }
}

TEST(Encode, EveryHalfSurvives) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (const float value = f32_from_f16(half); !std::isnan(value)) {
      ASSERT_EQ(f16_from_f32(value), half) << bits;
    } else {
      ASSERT_TRUE(std::isnan(f32_from_f16(f16_from_f32(value)))) << bits;
    }
    if (const float value = f32_from_bf16(half); !std::isnan(value)) {
      ASSERT_EQ(bf16_from_f32(value), half) << bits;
    } else {
      ASSERT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(value)))) << bits;
    }
  }
}

// What a stored row reads as is stored again as it was, though its scale is rounded. (Not so Q4_0 and Q4_1: their
// scale follows from the values that the codes happen to have.)
TEST(Encode, StoringTwiceChangesNothing) {
  std::vector<float> values(320), again(320), twice(320);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i * i)) * std::exp2f(static_cast<float>(i / 32));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> stored(static_cast<size_t>(bytes_of(dtype, 320)));
    encode_row(dtype)(values.data(), 320, stored.data());
    decode_row(dtype)(stored.data(), 0, 320, again.data());
    encode_row(dtype)(again.data(), 320, stored.data());
    decode_row(dtype)(stored.data(), 0, 320, twice.data());
    EXPECT_EQ(again, twice) << name(dtype);
  }
}

// Numbers so small that the inverse of their scale overflows are zeros, not noise.
TEST(Encode, SubnormalBlocks) {
  const std::vector<float> values(32, 3e-40f);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    std::vector<std::byte> stored(static_cast<size_t>(bytes_of(dtype, 32)));
    std::vector<float> back(32);
    encode_row(dtype)(values.data(), 32, stored.data());
    decode_row(dtype)(stored.data(), 0, 32, back.data());
    EXPECT_EQ(back, std::vector<float>(32, 0.0f)) << name(dtype);
  }
}

TEST(Encode, OnlySimpleTypes) {
  EXPECT_EQ(encodable_names(), "F32, F16, BF16, Q8_0, Q4_0, Q4_1");
  EXPECT_EQ(encode_row(DType::kQ4_K), nullptr);
}

}  // namespace
}  // namespace patina
