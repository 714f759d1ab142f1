#include "tensor/dtype.h"

#include "base/error.h"

namespace patina {
namespace {

// Block sizes are those of the GGUF format; tests/tensor compares them with the numbers of the gguf Python package.
constexpr DTypeInfo kTable[] = {
    {DType::kF32, "F32", 0, "F32", 1, 4},       {DType::kF16, "F16", 1, "F16", 1, 2},
    {DType::kBF16, "BF16", 30, "BF16", 1, 2},   {DType::kI32, "I32", 26, "I32", 1, 4},
    {DType::kQ8_0, "Q8_0", 8, "", 32, 34},      {DType::kQ4_0, "Q4_0", 2, "", 32, 18},
    {DType::kQ4_1, "Q4_1", 3, "", 32, 20},      {DType::kQ5_0, "Q5_0", 6, "", 32, 22},
    {DType::kQ5_1, "Q5_1", 7, "", 32, 24},      {DType::kQ2_K, "Q2_K", 10, "", 256, 84},
    {DType::kQ3_K, "Q3_K", 11, "", 256, 110},   {DType::kQ4_K, "Q4_K", 12, "", 256, 144},
    {DType::kQ5_K, "Q5_K", 13, "", 256, 176},   {DType::kQ6_K, "Q6_K", 14, "", 256, 210},
    {DType::kIQ4_NL, "IQ4_NL", 20, "", 32, 18}, {DType::kIQ4_XS, "IQ4_XS", 23, "", 256, 136},
    {DType::kMXFP4, "MXFP4", 39, "", 32, 17},   {DType::kI64, "I64", -1, "I64", 1, 8},
    {DType::kU8, "U8", -1, "U8", 1, 1},         {DType::kBool, "BOOL", -1, "BOOL", 1, 1},
};

consteval bool rows_follow_enum() {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  return true;
}
static_assert(rows_follow_enum(), "info() indexes the table by dtype");

// Type numbers of GGUF that Patina cannot read; the last two lines are numbers that ggml gave up.
struct UnreadableType {
  uint32_t gguf_type;
  std::string_view name;
};
constexpr UnreadableType kUnreadable[] = {
    {9, "Q8_1"},      {15, "Q8_K"},     {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"},
    {19, "IQ1_S"},    {21, "IQ3_S"},    {22, "IQ2_S"},      {24, "I8"},         {25, "I16"},
    {27, "I64"},      {28, "F64"},      {29, "IQ1_M"},      {34, "TQ1_0"},      {35, "TQ2_0"},
    {40, "NVFP4"},    {41, "Q1_0"},     {4, "Q4_2"},        {5, "Q4_3"},        {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

}  // namespace

const DTypeInfo& info(DType dtype) {
  const auto row = static_cast<size_t>(dtype);
  PATINA_CHECK(row < std::size(kTable), "dtype {}", row);
  return kTable[row];
}

std::span<const DTypeInfo> all_dtypes() { return kTable; }

std::optional<DType> dtype_from_gguf(uint32_t gguf_type) {
  for (const DTypeInfo& row : kTable)
    if (int64_t{row.gguf_type} == int64_t{gguf_type}) return row.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view dtype) {
  for (const DTypeInfo& row : kTable)
    if (!row.safetensors.empty() && row.safetensors == dtype) return row.dtype;
  return std::nullopt;
}

std::string_view gguf_type_name(uint32_t gguf_type) {
  if (const auto dtype = dtype_from_gguf(gguf_type)) return name(*dtype);
  for (const UnreadableType& row : kUnreadable)
    if (row.gguf_type == gguf_type) return row.name;
  return {};
}

int64_t bytes_of(DType dtype, int64_t values) {
  const DTypeInfo& row = info(dtype);
  PATINA_CHECK(values >= 0 && values % row.block_values == 0, "{} values of {}, which is stored in blocks of {}",
               values, row.name, row.block_values);
  int64_t bytes;
  PATINA_CHECK(!__builtin_mul_overflow(values / row.block_values, int64_t{row.block_bytes}, &bytes), "{} values of {}",
               values, row.name);
  return bytes;
}

}  // namespace patina
