// Small diffusion transformers of random numbers in files, in every naming.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace patina::testing {

struct TinyDit {
  enum class Form : uint8_t { kOriginal, kDiffusers, kGguf, kSharded };
  Form form = Form::kOriginal;
  DType dtype = DType::kF32;  // of the matrices of attention and MLP
  int64_t layers = 2, width = 32, feed_forward = 48, heads = 4, kv_heads = 2, head_width = 8;
  int64_t context_channels = 8, latent_channels = 4, encoder_width = 24, window = 3;
  double rope_base = 1e6, norm_eps = 1e-6;
  bool null_conditioning = true;
  // Changes the name or shape of a tensor before it is written; false leaves it out.
  std::function<bool(std::string& name, Shape& shape)> edit = {};
};

// Writes it at `path`: a file, as GGUF with that extension or, in diffusers' form and sharded, a directory. Returns
// what DitModel::load() takes.
std::filesystem::path write_tiny_dit(const std::filesystem::path& path, const TinyDit& model);

// Uniform in [-1, 1), by name and index: as numbers() in tools/make_dit_goldens.py.
std::vector<double> named_numbers(std::string_view name, int64_t count);
// offset + scale times them, in F32.
std::vector<float> named_floats(std::string_view name, int64_t count, double scale, double offset = 0.0);

}  // namespace patina::testing
