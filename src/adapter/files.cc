#include "adapter/files.h"

#include <algorithm>

#include "adapter/formats.h"
#include "adapter/sites.h"
#include "formats/gguf.h"

namespace patina {
namespace {

constexpr AdapterFormatRow kFormats[] = {
    {AdapterFormat::kPeft, "peft", true},
    {AdapterFormat::kGguf, "gguf", false},
    {AdapterFormat::kLycoris, "lycoris", false},
};

constexpr std::string_view kConfig = "adapter_config.json";
constexpr std::string_view kPeftWeights = "adapter_model.safetensors", kMlxWeights = "adapters.safetensors";
// In the directory of a training run; the second of a diffusion transformer's.
constexpr std::string_view kLycorisWeights[] = {"adapter.safetensors", "lokr_weights.safetensors"};

AdapterFile read_any(const std::filesystem::path& path, const AdapterBase& base) {
  if (std::filesystem::is_directory(path)) {
    if (std::filesystem::exists(path / kMlxWeights)) return read_mlx(path / kConfig, path / kMlxWeights);
    for (const std::string_view weights : kLycorisWeights)
      if (std::filesystem::exists(path / weights) && !std::filesystem::exists(path / kConfig))
        return read_lycoris(path / weights, base);
    return read_peft(path / kConfig, path / kPeftWeights, base);
  }
  if (path.extension() != ".safetensors") return read_gguf_lora(path, base);
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (file.metadata().contains(kCheckpointKey))
    fail(Error::Kind::kModel,
         "{}: is a checkpoint of a training run, expected an adapter; give the run's directory once it holds one: "
         "train-lm --resume goes on to the end",
         path.string());
  if (is_lycoris(file)) return read_lycoris(path, base);
  const std::filesystem::path config = path.parent_path() / kConfig;
  return path.filename() == kMlxWeights ? read_mlx(config, path) : read_peft(config, path, base);
}

}  // namespace

std::span<const AdapterFormatRow> adapter_formats() { return kFormats; }

std::string format_obstacle(AdapterFormat format, std::span<const AdaptedSite> sites) {
  switch (format) {
    case AdapterFormat::kPeft:
      return peft_obstacle(sites);
    case AdapterFormat::kGguf:
      return gguf_obstacle(sites);
    case AdapterFormat::kLycoris:
      return "";
  }
  PATINA_CHECK(false, "format {}", static_cast<int>(format));
}

void write_adapter(AdapterFormat format, const std::filesystem::path& path, const AdapterFile& adapter,
                   const AdapterBase& base, DType dtype) {
  PATINA_CHECK(!adapter.sites.empty(), "nothing to write");
  if (const std::string obstacle = format_obstacle(format, adapter.sites); !obstacle.empty())
    fail(Error::Kind::kUsage, "{}: {}", path.string(), obstacle);
  switch (format) {
    case AdapterFormat::kPeft:
      return write_peft(path, adapter, base, dtype);
    case AdapterFormat::kGguf:
      return write_gguf_lora(path, adapter, base, dtype);
    case AdapterFormat::kLycoris:
      return write_lycoris(path, adapter, base, dtype);
  }
}

AdapterFile read_adapter(const std::filesystem::path& path, const AdapterBase& base) {
  AdapterFile adapter = read_any(path, base);
  std::vector<std::string> above;
  for (const AdaptedSite& site : adapter.sites)
    if (base.layers > 0 && site.layer >= base.layers) above.push_back(site_label(site.layer, site.site));
  if (!above.empty())
    fail(Error::Kind::kModel, "{}: adapts {}, the model has {} layers; use the base model the adapter was trained on",
         path.string(), listed(above), base.layers);
  return adapter;
}

bool looks_like_adapter(const std::filesystem::path& path) {
  std::error_code ignored;  // opening the file says what is wrong with it
  if (std::filesystem::is_directory(path, ignored)) return true;
  if (path.extension() == ".safetensors")
    return std::filesystem::exists(path.parent_path() / kConfig, ignored) || is_lycoris(SafetensorsFile::open(path));
  return GgufFile::open(path).string_or("general.type", "model") == "adapter";
}

std::map<std::string, std::string> own_metadata(const SafetensorsFile& file) {
  std::map<std::string, std::string> own;
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(kOwnMetadata)) own[key] = value;
  return own;
}

void write_own_metadata(const AdapterFile& adapter, SafetensorsWriter* writer) {
  writer->set_metadata("format", "pt");
  for (const auto& [key, value] : adapter.metadata) {
    PATINA_CHECK(key.starts_with(kOwnMetadata), "metadata key {}", key);
    writer->set_metadata(key, value);
  }
}

}  // namespace patina
