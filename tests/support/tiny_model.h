// A random two-layer llama in a GGUF file: grouped heads (8 query, 2 key/value), tied head, byte-level vocabulary,
// ChatML template.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tensor/dtype.h"

namespace patina::testing {

struct TinyModel {
  DType dtype = DType::kF32;  // of the matrices: F32, F16, BF16, Q8_0, Q4_1 or Q4_K
  int64_t layers = 2;
  int64_t width = 256;  // a multiple of 16; of 256 for K types
  int64_t feed_forward = 512;
  int64_t context = 512;
  bool tied_head = true;
  bool chat_template = true;
  const char* architecture = "llama";
  uint32_t seed = 1;
};

void write_tiny_model(const std::filesystem::path& path, const TinyModel& model);

}  // namespace patina::testing
