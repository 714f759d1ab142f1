// Adapter files: PEFT directories and llama.cpp GGUF LoRA, written and read. Facts of both formats: docs/adapters.md.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "adapter/lora.h"

namespace patina {

// What an adapter file says about itself.
struct AdapterFile {
  std::vector<LoraPair> pairs;
  std::string base_model;                       // name or path of the base
  std::map<std::string, std::string> metadata;  // own data: patina.version, patina.base_fingerprint, ...
};

// What writing needs to know of the base model.
struct AdapterBase {
  std::string name;          // base_model_name_or_path
  std::string architecture;  // GGUF architecture: "llama"
  // Row r of a site's W in Hugging Face order is stored row row_map(layer, site)[r]; empty = identity.
  std::function<std::span<const int32_t>(int layer, std::string_view site)> row_map;
};

// adapter_config.json + adapter_model.safetensors (F32) in an existing directory. Each file is written atomically.
void write_peft(const std::filesystem::path& directory, const AdapterFile& adapter, const AdapterBase& base);
// One GGUF file (F32). GGUF holds one alpha for the whole file: pairs whose alpha/rank differs are folded into B.
// Rows of B follow the base file's own order (row_map).
void write_gguf_lora(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base);

// Reads a PEFT directory (or its adapter_model.safetensors), or a GGUF LoRA file. Error(kModel) naming the file,
// tensor, what was expected, found, and what to do: missing halves, foreign keys, wrong shapes, other peft types,
// unsupported options. rsLoRA, rank_pattern and alpha_pattern are honoured: alpha of a pair is what makes alpha/rank
// the true scale.
AdapterFile read_adapter(const std::filesystem::path& path, const AdapterBase& base);

}  // namespace patina
