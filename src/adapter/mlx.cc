// mlx-lm's adapter directory, read: LoRA and DoRA. Facts of the format: mlx-lm's LORA.md and its adapters; see
// docs/adapters.md.
#include <cmath>
#include <nlohmann/json.hpp>

#include "adapter/formats.h"
#include "adapter/sites.h"
#include "base/file.h"
#include "formats/printable.h"

namespace patina {
namespace {

// MLX multiplies by this number itself, not by it over the rank.
double read_scale(const std::filesystem::path& path) {
  nlohmann::json config;
  try {
    config = nlohmann::json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    fail(Error::Kind::kModel, "{}: is not valid JSON ({}); copy the adapter again", path.string(),
         printable(error.what()));
  }
  const auto parameters = config.is_object() ? config.value("lora_parameters", nlohmann::json()) : nlohmann::json();
  const auto scale = parameters.is_object() ? parameters.value("scale", nlohmann::json()) : nlohmann::json();
  if (!scale.is_number() || !std::isfinite(static_cast<float>(scale.get<double>())))
    fail(Error::Kind::kModel, "{}: lora_parameters.scale is {}, expected a number; save the adapter again with mlx-lm",
         path.string(), printable(scale.dump()));
  return scale.get<double>();
}

}  // namespace

AdapterFile read_mlx(const std::filesystem::path& config, const std::filesystem::path& weights) {
  const double scale = read_scale(config);
  const SafetensorsFile file = SafetensorsFile::open(weights);
  PartCollector collector(weights, PartNames::kMlx);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    std::string_view module = tensor.name;
    const auto part = take_part(&module, PartNames::kMlx);
    collector.add(part, parse_hf_module_path(module, ModelFamily::kDecoder), tensor.name, tensor.dtype, tensor.shape,
                  tensor.data);
  }
  AdapterFile adapter;
  adapter.format = "mlx";
  adapter.sites =
      collector.sites("LoRA factors of a known layer",
                      fmt::format("{}{}: train linear layers of the decoder only", hf_module_path(SiteName::kQ, 0),
                                  part_suffix(Part::kLoraA, PartNames::kMlx)));
  for (AdaptedSite& site : adapter.sites) {
    auto& lora = std::get<LoraFactors>(site.factors);
    lora.alpha = static_cast<float>(scale * static_cast<double>(lora.rank));
  }
  adapter.metadata = own_metadata(file);
  return adapter;
}

}  // namespace patina
