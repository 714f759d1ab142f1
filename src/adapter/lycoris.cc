// The safetensors file of LyCORIS and kohya: LoRA, DoRA and LoKr. Facts of the format: LyCORIS's modules; see
// docs/adapters.md.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adapter/formats.h"
#include "adapter/sites.h"
#include "formats/printable.h"

namespace patina {
namespace {

using Json = nlohmann::ordered_json;

// No prefix begins another one.
constexpr std::string_view kPrefixes[] = {"lycoris_", "lora_unet_", "lora_te1_", "lora_te_"};
constexpr std::string_view kWritten = kPrefixes[0];
constexpr std::string_view kOfModel = "model.";  // headless bases have names without it
constexpr const char* kBaseModel = "patina.base_model";

std::string joined(std::string_view path) {
  std::string text(path);
  std::ranges::replace(text, '.', '_');
  return text;
}

// Names joined by '_' cannot be taken apart, so they are looked up among those of all sites.
std::map<std::string, SitePlace> joined_names(ModelFamily family, int layers) {
  std::map<std::string, SitePlace> names;
  for (const SiteName site : sites_of(family)) {
    const bool head = site == SiteName::kLmHead;
    for (int layer = head ? kNoLayer : 0; layer < (head ? 0 : layers); ++layer) {
      const std::string path = hf_module_path(site, layer);
      names.emplace(joined(path), SitePlace{site, layer});
      if (path.starts_with(kOfModel)) names.emplace(joined(path.substr(kOfModel.size())), SitePlace{site, layer});
    }
  }
  return names;
}

std::string_view prefix_of(std::string_view tensor) {
  for (const std::string_view prefix : kPrefixes)
    if (tensor.starts_with(prefix)) return prefix;
  return "";
}

std::string number_text(double value) { return fmt::format("{:g}", value); }

// What loaders want to know before they open a tensor. Of files whose sites differ, the first site speaks.
void write_network_metadata(const AdaptedSite& site, SafetensorsWriter* writer) {
  const auto set = [&](int64_t dim, float alpha, const Json& arguments) {
    writer->set_metadata("ss_network_module", "lycoris.kohya");
    writer->set_metadata("ss_network_dim", fmt::to_string(dim));
    writer->set_metadata("ss_network_alpha", number_text(static_cast<double>(alpha)));
    writer->set_metadata("ss_network_args", arguments.dump());
  };
  if (const auto* lora = std::get_if<LoraFactors>(&site.factors)) {
    Json arguments = {{"algo", "lora"}};
    if (!lora->magnitude.empty()) arguments["dora_wd"] = "True";
    return set(lora->rank, lora->alpha, arguments);
  }
  const auto& lokr = std::get<LokrFactors>(site.factors);
  const int64_t factor = std::max(lokr.w1.rows, lokr.w1.columns);
  const bool both = !lokr.w1.is_whole(), full = lokr.w1.is_whole() && lokr.w2.is_whole();
  set(lokr.dim, lokr.alpha,
      {{"algo", "lokr"}, {"factor", fmt::to_string(factor)}, {"decompose_both", both ? "True" : "False"}});
  writer->set_metadata("lokr_config",
                       Json{{"algo", "lokr"},
                            {"linear_dim", lokr.dim},
                            {"linear_alpha", full ? static_cast<double>(lokr.dim) : static_cast<double>(lokr.alpha)},
                            {"factor", factor},
                            {"decompose_both", both},
                            {"full_matrix", full},
                            {"weight_decompose", false}}
                           .dump());
}

}  // namespace

bool is_lycoris(const SafetensorsFile& file) {
  return std::ranges::any_of(file.tensors(),
                             [](const SafetensorsTensor& tensor) { return !prefix_of(tensor.name).empty(); });
}

void write_lycoris(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base,
                   DType dtype) {
  SafetensorsWriter weights;
  write_own_metadata(adapter, &weights);
  weights.set_metadata(kBaseModel, base.name);
  write_network_metadata(adapter.sites[0], &weights);
  for (const AdaptedSite& site : adapter.sites) {
    const std::string module = fmt::format("{}{}", kWritten, joined(hf_module_path(place_of(site).site, site.layer)));
    const auto name = [&](Part part) { return module + std::string(part_suffix(part, PartNames::kLycoris)); };
    for (const PartView& part : parts_of(site)) {
      const Shape shape = part.part == Part::kMagnitude ? Shape{site.out, 1} : part.shape;
      add_part(&weights, name(part.part), part_type(part.part, dtype), shape, part.values);
    }
    const auto* lokr = std::get_if<LokrFactors>(&site.factors);
    // Programs disagree on alpha where both factors are whole: equal to dim, it is 1 to all of them.
    const float alpha = lokr == nullptr ? std::get<LoraFactors>(site.factors).alpha
                        : lokr->w1.is_whole() && lokr->w2.is_whole()
                            ? static_cast<float>(std::max<int64_t>(lokr->dim, 1))
                            : lokr->alpha;
    weights.add(name(Part::kAlpha), DType::kF32, Shape{}, std::as_bytes(std::span(&alpha, 1)));
  }
  weights.write(path);
}

AdapterFile read_lycoris(const std::filesystem::path& path, const AdapterBase& base) {
  constexpr int kMostLayers = 1024;  // of a model that is not known
  const std::map<std::string, SitePlace> names = joined_names(base.family, base.layers > 0 ? base.layers : kMostLayers);
  const SafetensorsFile file = SafetensorsFile::open(path);
  PartCollector collector(path, PartNames::kLycoris);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    std::string_view module = tensor.name;
    const auto part = take_part(&module, PartNames::kLycoris);
    const std::string_view prefix = prefix_of(module);
    const auto found = names.find(std::string(module.substr(prefix.size())));
    const bool known = !prefix.empty() && found != names.end();
    collector.add(part, known ? std::optional(found->second) : std::nullopt, tensor.name, tensor.dtype, tensor.shape,
                  tensor.data);
  }
  AdapterFile adapter;
  adapter.format = "lycoris";
  adapter.sites = collector.sites("LoRA or LoKr factors of a layer of this model",
                                  fmt::format("{}{}{}: use the base model the adapter was trained on", kWritten,
                                              joined(hf_module_path(sites_of(base.family).front(), 0)),
                                              part_suffix(Part::kLoraA, PartNames::kLycoris)));
  for (AdaptedSite& site : adapter.sites) {
    // The stored alpha of rsLoRA already has the root of the rank in it. None, or 0, means a scale of 1.
    if (auto* lora = std::get_if<LoraFactors>(&site.factors)) {
      if (lora->alpha == 0.0f) lora->alpha = static_cast<float>(lora->rank);
      continue;
    }
    auto& lokr = std::get<LokrFactors>(site.factors);
    if (lokr.dim == 0) {  // both whole: alpha says what dim was asked for, and changes nothing
      constexpr float kLargestDim = 0x1p24f;
      lokr.dim = lokr.alpha >= 1.0f && lokr.alpha <= kLargestDim ? std::llround(lokr.alpha) : 1;
      lokr.alpha = static_cast<float>(lokr.dim);
    } else if (lokr.alpha == 0.0f) {
      lokr.alpha = static_cast<float>(lokr.dim);
    }
  }
  adapter.metadata = own_metadata(file);
  if (auto node = adapter.metadata.extract(kBaseModel); !node.empty()) adapter.base_model = node.mapped();
  return adapter;
}

}  // namespace patina
