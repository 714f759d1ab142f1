// Numbers of the GGUF format that the reader and the writer share. Source: docs/gguf.md of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace patina {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr uint64_t kGgufMaxNameBytes = 65535;

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// The next multiple of the alignment, a power of two; offset is far below 2^64.
inline constexpr uint64_t gguf_align(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

}  // namespace patina
