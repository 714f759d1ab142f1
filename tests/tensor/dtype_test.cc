#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/error.h"

namespace patina {
namespace {

struct FormatType {
  std::string_view name;
  int32_t block_values, block_bytes;
};

// GGMLQuantizationType and GGML_QUANT_SIZES of the gguf Python package, version 0.19.0.
const std::map<uint32_t, FormatType> kFormat = {
    {0, {"F32", 1, 4}},         {1, {"F16", 1, 2}},         {2, {"Q4_0", 32, 18}},      {3, {"Q4_1", 32, 20}},
    {6, {"Q5_0", 32, 22}},      {7, {"Q5_1", 32, 24}},      {8, {"Q8_0", 32, 34}},      {9, {"Q8_1", 32, 40}},
    {10, {"Q2_K", 256, 84}},    {11, {"Q3_K", 256, 110}},   {12, {"Q4_K", 256, 144}},   {13, {"Q5_K", 256, 176}},
    {14, {"Q6_K", 256, 210}},   {15, {"Q8_K", 256, 292}},   {16, {"IQ2_XXS", 256, 66}}, {17, {"IQ2_XS", 256, 74}},
    {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}},   {20, {"IQ4_NL", 32, 18}},   {21, {"IQ3_S", 256, 110}},
    {22, {"IQ2_S", 256, 82}},   {23, {"IQ4_XS", 256, 136}}, {24, {"I8", 1, 1}},         {25, {"I16", 1, 2}},
    {26, {"I32", 1, 4}},        {27, {"I64", 1, 8}},        {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}},
    {30, {"BF16", 1, 2}},       {34, {"TQ1_0", 256, 54}},   {35, {"TQ2_0", 256, 66}},   {39, {"MXFP4", 32, 17}},
    {40, {"NVFP4", 64, 36}},    {41, {"Q1_0", 128, 18}},
};

TEST(DType, TableMatchesTheFormat) {
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.gguf_type < 0) continue;  // of safetensors alone
    const FormatType& format = kFormat.at(static_cast<uint32_t>(row.gguf_type));
    EXPECT_EQ(row.name, format.name);
    EXPECT_EQ(row.block_values, format.block_values) << row.name;
    EXPECT_EQ(row.block_bytes, format.block_bytes) << row.name;
    EXPECT_EQ(info(row.dtype).name, row.name);
    EXPECT_EQ(dtype_from_gguf(static_cast<uint32_t>(row.gguf_type)), row.dtype);
  }
  EXPECT_EQ(all_dtypes().size(), 20u);
  EXPECT_EQ(dtype_from_gguf(static_cast<uint32_t>(-1)), std::nullopt);
}

TEST(DType, EveryNumberOfTheFormatHasItsName) {
  for (const auto& [number, format] : kFormat) EXPECT_EQ(gguf_type_name(number), format.name);
  EXPECT_EQ(gguf_type_name(31), "Q4_0_4_4");
  EXPECT_EQ(gguf_type_name(1000), "");
  EXPECT_EQ(gguf_type_name(0xffffffff), "");
}

TEST(DType, UnreadableNumbers) {
  EXPECT_EQ(dtype_from_gguf(16), std::nullopt);
  EXPECT_EQ(dtype_from_gguf(0xffffffff), std::nullopt);
}

TEST(DType, Safetensors) {
  EXPECT_EQ(dtype_from_safetensors("F32"), DType::kF32);
  EXPECT_EQ(dtype_from_safetensors("F16"), DType::kF16);
  EXPECT_EQ(dtype_from_safetensors("BF16"), DType::kBF16);
  EXPECT_EQ(dtype_from_safetensors("I32"), DType::kI32);
  EXPECT_EQ(dtype_from_safetensors("Q4_0"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors(""), std::nullopt);
}

TEST(DType, Bytes) {
  EXPECT_EQ(bytes_of(DType::kF32, 3), 12);
  EXPECT_EQ(bytes_of(DType::kQ4_K, 512), 288);
  EXPECT_EQ(bytes_of(DType::kQ8_0, 0), 0);
  EXPECT_THROW(bytes_of(DType::kQ4_K, 32), InternalError);
  EXPECT_THROW(bytes_of(DType::kF32, -1), InternalError);
  EXPECT_THROW(bytes_of(DType::kF32, std::numeric_limits<int64_t>::max() / 2), InternalError);
  EXPECT_THROW(info(static_cast<DType>(200)), InternalError);
}

}  // namespace
}  // namespace patina
