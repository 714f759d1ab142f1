// The table of stored types. One row a type; everything that depends on a type's layout reads it here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace patina {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kI64,  // from here on: masks and the like in safetensors
  kU8,
  kBool,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // as GGUF tools print it: "Q4_K"
  int32_t gguf_type;             // ggml type number, -1 where GGUF has none
  std::string_view safetensors;  // safetensors dtype string, empty where it has none
  int32_t block_values;          // values that are stored together; a row must be a multiple of it
  int32_t block_bytes;
};

const DTypeInfo& info(DType dtype);
std::span<const DTypeInfo> all_dtypes();
inline std::string_view name(DType dtype) { return info(dtype).name; }
std::optional<DType> dtype_from_gguf(uint32_t gguf_type);
std::optional<DType> dtype_from_safetensors(std::string_view dtype);
// The name of any ggml type number, also of those Patina cannot read, for messages; empty where unknown.
std::string_view gguf_type_name(uint32_t gguf_type);

// Bytes of `values` values (a multiple of the block).
int64_t bytes_of(DType dtype, int64_t values);

}  // namespace patina
