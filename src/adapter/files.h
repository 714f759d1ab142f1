// Adapter files: PEFT directories and llama.cpp GGUF LoRA, written and read. Facts of both formats: docs/adapters.md.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"

namespace patina {

// What an adapter file holds.
struct AdapterFile {
  std::vector<AdaptedSite> sites;  // read: in the order of layers, then of the table of sites, lm_head last
  std::string base_model;          // read: the base's name as the file gives it; written: AdapterBase::name
  std::map<std::string, std::string> metadata;  // own data, keys begin with "patina.": patina.version, ...
};

// What reading and writing need to know of the base model.
struct AdapterBase {
  std::string name;          // base_model_name_or_path
  std::string architecture;  // GGUF architecture: "llama"
  int layers = 0;            // of the whole model: PEFT's target_modules depend on it
  // Row r of a site's W in Hugging Face order is stored row row_map(layer, site)[r]; empty = identity.
  std::function<std::span<const int32_t>(int layer, std::string_view site)> row_map;
};

// adapter_config.json + adapter_model.safetensors (F32) in an existing directory. Each file is written atomically.
void write_peft(const std::filesystem::path& directory, const AdapterFile& adapter, const AdapterBase& base);
// One GGUF file (F32). GGUF holds one alpha for the whole file: of sites with another alpha the ratio is folded into B,
// without rounding where it is a power of two. Rows of B follow the base file's own order (row_map).
void write_gguf_lora(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base);

// Reads a PEFT directory (or the .safetensors file in one), or a GGUF LoRA file. Error(kModel) naming the file, tensor,
// what was expected, found, and what to do: missing halves, foreign keys, wrong shapes, numbers that are not finite,
// other peft types, unsupported options. rsLoRA, rank_pattern and alpha_pattern are honoured: alpha of a site is what
// makes alpha/rank the true scale.
AdapterFile read_adapter(const std::filesystem::path& path, const AdapterBase& base);

}  // namespace patina
