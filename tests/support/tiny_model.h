// A random two-layer llama in a GGUF file: grouped heads (8 query, 2 key/value), tied head, byte-level vocabulary,
// ChatML template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "formats/gguf.h"

namespace patina::testing {

struct TinyModel {
  // Of the matrices: F32, F16, BF16, Q8_0, Q4_1, Q2_K, Q3_K, Q4_K, IQ4_NL, IQ4_XS, MXFP4; I32, to be refused.
  DType dtype = DType::kF32;
  int64_t layers = 2;
  int64_t width = 256;  // a multiple of 16; of 256 for K types
  int64_t feed_forward = 512;
  int64_t context = 512;
  bool tied_head = true;
  bool chat_template = true;
  const char* architecture = "llama";
  uint32_t seed = 1;
  // Changes the type or shape of a tensor before its numbers are drawn; false leaves it out.
  std::function<bool(std::string_view name, DType& dtype, Shape& shape)> edit = {};
  std::function<void(GgufWriter& file)> add = {};  // more keys and tensors
};

void write_tiny_model(const std::filesystem::path& path, const TinyModel& model);

}  // namespace patina::testing
