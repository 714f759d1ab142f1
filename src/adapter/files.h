// Adapter files: read and written in the formats of other programs. Facts of the formats: docs/adapters.md.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "formats/names.h"
#include "tensor/dtype.h"

namespace patina {

// What an adapter file holds.
struct AdapterFile {
  std::vector<AdaptedSite> sites;  // read: in the order of layers, then of the table of sites, lm_head last
  std::string base_model;          // read: the base's name as the file gives it; written: AdapterBase::name
  std::map<std::string, std::string> metadata;  // own data, keys begin with "patina.": patina.version, ...
  std::string format = {};                      // read: "peft", "gguf", "lycoris", "mlx"
};

// Key of the metadata of a run's checkpoints, which are no adapters.
inline constexpr const char* kCheckpointKey = "patina.checkpoint";

// What reading and writing need to know of the base model.
struct AdapterBase {
  std::string name;          // base_model_name_or_path
  std::string architecture;  // GGUF architecture: "llama"
  int layers = 0;            // of the whole model: PEFT's target_modules depend on it; 0 = not known, reading only
  // Row r of a site's W in Hugging Face order is stored row row_map(layer, site)[r]; empty = identity.
  std::function<std::span<const int32_t>(int layer, std::string_view site)> row_map;
  ModelFamily family = ModelFamily::kDecoder;  // whose modules its files name
};

// The formats that can be written: PEFT's directory, llama.cpp's GGUF LoRA file, the safetensors file of LyCORIS and
// kohya. One row of a table each.
enum class AdapterFormat { kPeft, kGguf, kLycoris };
struct AdapterFormatRow {
  AdapterFormat format;
  std::string_view name;
  bool is_directory;
};
std::span<const AdapterFormatRow> adapter_formats();

// Why the format cannot hold these sites, and what to do; empty where it can.
std::string format_obstacle(AdapterFormat format, std::span<const AdaptedSite> sites);

// Writes an adapter, each file atomically; a directory must be there. Factors are stored as `dtype`: F32 loses nothing.
// What a format has no words for is folded into the factors, by powers of two where possible: of GGUF, which has one
// alpha for the whole file, the ratio of a site's alpha to it goes into B; LoKr with a low-rank second factor is
// written as a LoRA. Error(kUsage) with the reason where there is an obstacle.
void write_adapter(AdapterFormat format, const std::filesystem::path& path, const AdapterFile& adapter,
                   const AdapterBase& base, DType dtype = DType::kF32);

// Reads a PEFT or MLX directory (or the .safetensors file in one), a LyCORIS or kohya .safetensors file, or a GGUF LoRA
// file. Error(kModel) naming the file, tensor, what was expected, found, and what to do: missing and foreign tensors,
// wrong shapes, numbers that are not finite, other kinds of adapters, unsupported options. rsLoRA, rank_pattern and
// alpha_pattern are honoured: alpha of a site is what makes alpha/rank the true scale.
AdapterFile read_adapter(const std::filesystem::path& path, const AdapterBase& base);
// Whether read_adapter() would take the path for an adapter rather than for something else.
bool looks_like_adapter(const std::filesystem::path& path);

}  // namespace patina
