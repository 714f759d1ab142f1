// PEFT's directory: LoRA, DoRA and LoKr. Facts of the format: PEFT's own configuration and checkpoint documentation;
// see docs/adapters.md.
#include <algorithm>
#include <cmath>
#include <set>

#include "adapter/formats.h"
#include "adapter/peft_config.h"
#include "adapter/sites.h"
#include "base/file.h"
#include "formats/printable.h"

namespace patina {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "base_model.model.";
// A headless base (AutoModel) has no "model." of its own: "base_model.model.layers.3...".
constexpr std::string_view kHeadless = "base_model.";
constexpr const char* kMagnitudeWeight = ".weight";  // ends the name of a magnitude in some versions

bool is_lokr(const AdaptedSite& site) { return std::holds_alternative<LokrFactors>(site.factors); }
bool is_dora(const AdaptedSite& site) {
  return !is_lokr(site) && !std::get<LoraFactors>(site.factors).magnitude.empty();
}
bool is_whole(const LokrFactors& lokr) { return lokr.w1.is_whole() && lokr.w2.is_whole(); }

// How PEFT divides a dimension into two factors. Unlike LyCORIS it does not sort them where `factor` divides it.
std::pair<int64_t, int64_t> peft_factors(int64_t dimension, int64_t factor) {
  if (factor > 0 && dimension % factor == 0) return {factor, dimension / factor};
  int64_t best = 1;
  for (int64_t m = 1; m * m <= dimension && (factor < 0 || m <= factor); ++m)
    if (dimension % m == 0) best = m;
  return {best, dimension / best};
}

// What a site's rank is to PEFT. Where both factors are whole it only says so: half of the longer side or more.
int64_t rank_of(const AdaptedSite& site) {
  if (!is_lokr(site)) return std::get<LoraFactors>(site.factors).rank;
  const auto& lokr = std::get<LokrFactors>(site.factors);
  return is_whole(lokr) ? std::max(lokr.dim, (std::max(lokr.w2.rows, lokr.w2.columns) + 1) / 2) : lokr.dim;
}
// PEFT scales by alpha / rank in every case.
float alpha_of(const AdaptedSite& site) {
  if (!is_lokr(site)) return std::get<LoraFactors>(site.factors).alpha;
  const auto& lokr = std::get<LokrFactors>(site.factors);
  return is_whole(lokr) ? static_cast<float>(rank_of(site)) : lokr.alpha;
}

// The options by which PEFT builds LoKr: for all sites at once.
struct LokrOptions {
  int64_t factor;
  bool decompose_both;
};

// Whether PEFT would make factors of these shapes, the same of them low-rank.
bool builds(const LokrOptions& options, const AdaptedSite& site) {
  const auto& lokr = std::get<LokrFactors>(site.factors);
  const auto out = peft_factors(site.out, options.factor), in = peft_factors(site.in, options.factor);
  const int64_t rank = rank_of(site);
  const bool whole1 = !options.decompose_both || 2 * rank >= std::max(out.first, in.first);
  const bool whole2 = 2 * rank >= std::max(out.second, in.second);
  return out == std::pair(lokr.w1.rows, lokr.w2.rows) && in == std::pair(lokr.w1.columns, lokr.w2.columns) &&
         whole1 == lokr.w1.is_whole() && whole2 == lokr.w2.is_whole();
}

std::optional<LokrOptions> find_lokr_options(std::span<const AdaptedSite> sites) {
  std::set<int64_t> factors = {-1};
  bool both = false;
  for (const AdaptedSite& site : sites) {
    const auto& lokr = std::get<LokrFactors>(site.factors);
    factors.insert({lokr.w1.rows, lokr.w1.columns});
    both = both || !lokr.w1.is_whole();
  }
  for (const int64_t factor : factors) {
    const LokrOptions options{factor, both};
    if (std::ranges::all_of(sites, [&](const AdaptedSite& site) { return builds(options, site); })) return options;
  }
  return std::nullopt;
}

// The most common value: what differs from it goes into a pattern.
template <typename T>
T most_common(std::span<const AdaptedSite> sites, T (*value_of)(const AdaptedSite&)) {
  std::map<T, int> counts;
  for (const AdaptedSite& site : sites) ++counts[value_of(site)];
  return std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; })->first;
}

Json number(float value) {
  return value == std::floor(value) && std::abs(value) < 0x1p24f ? Json(static_cast<int64_t>(value)) : Json(value);
}

// What makes PEFT adapt exactly these layers: the module's own name where all layers of a site are adapted, the full
// path of each where only some are.
std::vector<std::string> target_modules(std::span<const AdaptedSite> sites, int layers) {
  std::map<SiteName, std::set<int>> layers_of;
  for (const AdaptedSite& site : sites) layers_of[place_of(site).site].insert(site.layer);
  std::vector<std::string> targets;
  for (const auto& [site, adapted] : layers_of) {
    PATINA_CHECK(*adapted.rbegin() < layers, "layer {} of {}", *adapted.rbegin(), layers);
    if (site == SiteName::kLmHead || static_cast<int>(adapted.size()) == layers)
      targets.push_back(hf_module_end(site));
    else
      for (const int layer : adapted) targets.push_back(hf_module_path(site, layer));
  }
  return targets;
}

std::optional<SitePlace> parse_module(std::string_view module, ModelFamily family) {
  auto place = parse_hf_module_path(module, family);
  if (!place && module.starts_with(kHeadless)) place = parse_hf_module_path(module.substr(kHeadless.size()), family);
  return place;
}

// Layers that the config names and the weights lack, and the other way round.
void check_targets(const PeftConfig& config, const AdapterFile& adapter, const AdapterBase& base,
                   const std::string& weights) {
  std::set<std::string> expected, found;
  int layers = base.layers;
  // An adapter of a deeper model agrees with itself; that it does not fit this one is said by read_adapter().
  for (const AdaptedSite& site : adapter.sites) layers = std::max(layers, site.layer + 1);
  for (const SiteName site : sites_of(base.family)) {
    const bool head = site == SiteName::kLmHead;
    for (int layer = head ? kNoLayer : 0; layer < (head ? 0 : layers); ++layer)
      if (const std::string module = hf_module_path(site, layer); config.targets(module, layer))
        expected.insert(module);
  }
  for (const AdaptedSite& site : adapter.sites) found.insert(hf_module_path(place_of(site).site, site.layer));
  std::vector<std::string> complaints;
  for (const std::string& module : expected)
    if (!found.contains(module)) complaints.push_back(module + " is missing");
  for (const std::string& module : found)
    if (!expected.contains(module)) complaints.push_back(module + " is not expected");
  if (!complaints.empty())
    fail(Error::Kind::kModel, "{}: does not hold what target_modules in {} names: {}; copy the adapter again", weights,
         config.path(), listed(complaints));
}

}  // namespace

std::string peft_obstacle(std::span<const AdaptedSite> sites) {
  for (const AdaptedSite& site : sites)
    if (is_lokr(site) != is_lokr(sites[0]) || is_dora(site) != is_dora(sites[0]))
      return fmt::format("PEFT has one kind of adapter in a directory, {} is of another than {}; {}",
                         site_label(site.layer, site.site), site_label(sites[0].layer, sites[0].site), kMergeInstead);
  if (is_lokr(sites[0]) && !find_lokr_options(sites))
    return fmt::format(
        "PEFT chooses the shapes of LoKr's factors by one decompose_factor, and none gives those of this adapter; {}, "
        "or export it as lycoris",
        kMergeInstead);
  return "";
}

void write_peft(const std::filesystem::path& directory, const AdapterFile& adapter, const AdapterBase& base,
                DType dtype) {
  const int64_t rank = most_common(std::span(adapter.sites), rank_of);
  const float alpha = most_common(std::span(adapter.sites), alpha_of);
  Json ranks = Json::object(), alphas = Json::object();
  SafetensorsWriter weights;
  write_own_metadata(adapter, &weights);
  for (const AdaptedSite& site : adapter.sites) {
    const std::string module = hf_module_path(place_of(site).site, site.layer);
    if (rank_of(site) != rank) ranks[module] = rank_of(site);
    if (alpha_of(site) != alpha) alphas[module] = number(alpha_of(site));
    for (const PartView& part : parts_of(site)) {
      const std::string tensor = fmt::format("{}{}{}", kPrefix, module, part_suffix(part.part, PartNames::kPeft));
      add_part(&weights, tensor, part_type(part.part, dtype), part.shape, part.values);
    }
  }
  const bool lokr = is_lokr(adapter.sites[0]);
  Json config = {{"peft_type", lokr ? "LOKR" : "LORA"},
                 {"task_type", base.family == ModelFamily::kDecoder ? Json("CAUSAL_LM") : Json()},
                 {"base_model_name_or_path", base.name},
                 {"r", rank},
                 {lokr ? "alpha" : "lora_alpha", number(alpha)},
                 {"target_modules", target_modules(adapter.sites, base.layers)},
                 {"inference_mode", true},
                 {"rank_pattern", ranks},
                 {"alpha_pattern", alphas},
                 {"modules_to_save", nullptr}};
  if (lokr) {
    const LokrOptions options = find_lokr_options(adapter.sites).value();
    config.update({{"rank_dropout", 0.0},
                   {"module_dropout", 0.0},
                   {"use_effective_conv2d", false},
                   {"decompose_both", options.decompose_both},
                   {"decompose_factor", options.factor},
                   {"init_weights", true}});
  } else {
    config.update({{"lora_dropout", 0.0},
                   {"bias", "none"},
                   {"fan_in_fan_out", false},
                   {"init_lora_weights", true},
                   {"use_rslora", false},
                   {"use_dora", is_dora(adapter.sites[0])}});
  }
  weights.write(directory / "adapter_model.safetensors");
  write_file(directory / "adapter_config.json", config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

AdapterFile read_peft(const std::filesystem::path& config_path, const std::filesystem::path& weights_path,
                      const AdapterBase& base) {
  const PeftConfig config(config_path);
  const std::string weights = weights_path.string();
  if (!std::filesystem::exists(weights_path))
    fail(Error::Kind::kModel,
         "{}: is missing; weights in another form (adapter_model.bin) are not read: save the adapter with "
         "safe_serialization=True",
         weights);
  const SafetensorsFile file = SafetensorsFile::open(weights_path);
  PartCollector collector(weights_path, PartNames::kPeft);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    std::string_view module = tensor.name;
    auto part = take_part(&module, PartNames::kPeft);
    if (!part && module.ends_with(kMagnitudeWeight)) {
      module.remove_suffix(std::string_view(kMagnitudeWeight).size());
      part = take_part(&module, PartNames::kPeft);
    }
    collector.add(part, parse_module(module, base.family), tensor.name, tensor.dtype, tensor.shape, tensor.data);
  }
  AdapterFile adapter;
  adapter.format = "peft";
  const std::vector<SiteName> known = sites_of(base.family);
  std::string modules;
  for (const SiteName site : known) modules += (modules.empty() ? "" : ", ") + hf_module_end(site);
  const std::string first = std::string(kPrefix) + hf_module_path(known.front(), 0);
  adapter.sites =
      collector.sites("factors of a known layer", fmt::format("{}{}: train with target_modules among {}", first,
                                                              part_suffix(Part::kLoraA, PartNames::kPeft), modules));
  for (AdaptedSite& site : adapter.sites) {
    const std::string module = hf_module_path(place_of(site).site, site.layer);
    if (is_lokr(site) != config.is_lokr() || is_dora(site) != config.is_dora())
      fail(Error::Kind::kModel,
           "{}: the factors of {} are not of the kind that {} says; the two files are not of one adapter", weights,
           module, config.path());
    const int64_t rank = config.rank_of(module);
    const float alpha = config.alpha_of(module);
    if (auto* lokr = std::get_if<LokrFactors>(&site.factors); lokr != nullptr && is_whole(*lokr)) {
      // Both whole: our scale is 1.
      if (const float scale = alpha / static_cast<float>(rank); scale != 1.0f)
        for (float& value : lokr->w1.whole) value *= scale;
      lokr->dim = rank;
      lokr->alpha = static_cast<float>(rank);
      continue;
    }
    if (rank != rank_of(site))
      fail(Error::Kind::kModel,
           "{}: the factors of {} have rank {}, expected {} as {} says; the two files are not of one adapter", weights,
           module, rank_of(site), rank, config.path());
    std::visit([&](auto& factors) { factors.alpha = alpha; }, site.factors);
  }
  if (base.layers > 0 && config.tells_targets()) check_targets(config, adapter, base, weights);
  adapter.base_model = config.base_model();
  adapter.metadata = own_metadata(file);
  return adapter;
}

}  // namespace patina
