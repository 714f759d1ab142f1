#include "quant/decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "quant/half.h"
#include "support/targets.h"

namespace patina {
namespace {

struct Golden {
  std::string blocks;
  std::vector<float> expected;
};

Golden read_golden(DType dtype) {
  const std::string bytes =
      read_file(std::filesystem::path(PATINA_SOURCE_DIR) / "tests/quant/goldens" / (std::string(name(dtype)) + ".bin"));
  const size_t block_bytes = info(dtype).block_bytes, block_values = info(dtype).block_values;
  const size_t blocks = bytes.size() / (block_bytes + sizeof(float) * block_values);
  Golden golden{bytes.substr(0, blocks * block_bytes), std::vector<float>(blocks * block_values)};
  EXPECT_GT(blocks, 10u);
  EXPECT_EQ(golden.blocks.size() + golden.expected.size() * sizeof(float), bytes.size());
  std::memcpy(golden.expected.data(), bytes.data() + golden.blocks.size(), golden.expected.size() * sizeof(float));
  return golden;
}

// Equal bits, except that any NaN equals any other.
bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_same(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same(got[i], expected[i])) << "value " << i << ": got " << got[i] << ", expected " << expected[i];
  }
}

std::vector<DType> decodable() {
  std::vector<DType> types;
  for (const DTypeInfo& row : all_dtypes()) {
    if (is_decodable(row.dtype)) types.push_back(row.dtype);
  }
  return types;
}

TEST(Decode, EveryTypeButIntegers) {
  EXPECT_EQ(decodable().size() + 4, all_dtypes().size());
  for (const DType integers : {DType::kI32, DType::kI64, DType::kU8, DType::kBool}) {
    EXPECT_FALSE(is_decodable(integers));
    EXPECT_EQ(decode_row(integers), nullptr);
  }
}

TEST(Decode, GoldensOfTheGgufPackage) {
  for (const DType dtype : decodable()) {
    SCOPED_TRACE(name(dtype));
    const Golden golden = read_golden(dtype);
    for_each_target([&] {
      const auto count = static_cast<int64_t>(golden.expected.size());
      constexpr float kCanary = 12345.0f;
      std::vector<float> out(golden.expected.size() + 16, kCanary);
      decode_row(dtype)(golden.blocks.data(), 0, count, out.data());
      expect_same(std::span(out).first(golden.expected.size()), golden.expected);
      for (size_t i = golden.expected.size(); i < out.size(); ++i) EXPECT_EQ(out[i], kCanary);
    });
  }
}

// Any run of blocks, from a row at any address.
TEST(Decode, PartsOfARow) {
  for (const DType dtype : decodable()) {
    SCOPED_TRACE(name(dtype));
    const Golden golden = read_golden(dtype);
    const std::string shifted = "x" + golden.blocks;
    const int64_t step = info(dtype).block_values, blocks = std::ssize(golden.expected) / step;
    for_each_target([&] {
      for (int64_t begin = 0; begin < std::min<int64_t>(blocks, 20); ++begin) {
        for (int64_t count = 0; begin + count <= std::min<int64_t>(blocks, 40); ++count) {
          std::vector<float> out(static_cast<size_t>(count * step));
          decode_row(dtype)(shifted.data() + 1, begin * step, count * step, out.data());
          expect_same(out, std::span(golden.expected).subspan(static_cast<size_t>(begin * step), out.size()));
          if (HasFatalFailure()) return;
        }
      }
    });
  }
}

TEST(Decode, RefusesPartsOfABlock) {
  const std::vector<uint8_t> row(2 * 18);
  float out[64];
  EXPECT_THROW(decode_row(DType::kQ4_0)(row.data(), 0, 16, out), InternalError);
  EXPECT_THROW(decode_row(DType::kQ4_0)(row.data(), 8, 32, out), InternalError);
}

// Exact value of a binary16 number from its definition.
float f16_by_definition(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<float>(half >> 15 ? -value : value);
}

TEST(Decode, EveryF16) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  std::vector<float> expected(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    expected[i] = f16_by_definition(halves[i]);
    ASSERT_TRUE(same(f32_from_f16(halves[i]), expected[i])) << i;
  }
  for_each_target([&] {
    std::vector<float> out(halves.size());
    decode_row(DType::kF16)(halves.data(), 0, std::ssize(halves), out.data());
    expect_same(out, expected);
    // As the scale of a block, with codes 1 and -1; NaNs too keep the same bits on every instruction set.
    for (size_t i = 0; i < halves.size(); ++i) {
      uint8_t block[34] = {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8), 1, 0xff};
      float values[32];
      decode_row(DType::kQ8_0)(block, 0, 32, values);
      ASSERT_TRUE(same(values[0], expected[i]) && same(values[1], -expected[i])) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(f32_from_f16(halves[i]))) << i;
    }
  });
}

}  // namespace
}  // namespace patina
