// PEFT's LoRA directory. Facts of the format: PEFT's own configuration and checkpoint documentation; see
// docs/adapters.md.
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "adapter/factors.h"
#include "base/file.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace patina {
namespace {

using Json = nlohmann::ordered_json;  // ordered: the first pattern that matches counts

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kSuffix[] = {".lora_A.weight", ".lora_B.weight"};

// Options that change what the factors mean. Off: absent, null, false, "none" or empty.
struct Unsupported {
  std::string_view key, way_out;
};
constexpr std::string_view kMerge = "merge it into its base with PEFT's merge_and_unload() and use the merged model";
constexpr Unsupported kUnsupported[] = {
    {"use_dora", kMerge},
    {"modules_to_save", "train without modules_to_save, or merge with PEFT's merge_and_unload()"},
    {"bias", "train with bias \"none\", or merge with PEFT's merge_and_unload()"},
    {"lora_bias", kMerge},
    {"fan_in_fan_out", "it is for models with Conv1D layers, which are not supported"},
    {"layer_replication", kMerge},
    {"target_parameters", kMerge},
    {"trainable_token_indices", kMerge},
    {"alora_invocation_tokens", "activated LoRA cannot be merged; train a plain LoRA"},
    {"use_qalora", kMerge},
    {"arrow_config", "routed adapters cannot be merged; load them one by one"},
};

// Ways to begin that leave the base as it is. The others (PiSSA, OLoRA, CorDA, LoftQ, ...) subtract from it.
constexpr std::string_view kPlainBeginnings[] = {"gaussian", "eva", "orthogonal"};

bool is_off(const Json& value) {
  return value.is_null() || value == false || value == "none" || value == "" ||
         (value.is_structured() && value.empty());
}

class Config {
 public:
  explicit Config(const std::filesystem::path& path) : path_(path.string()) {
    if (!std::filesystem::exists(path))
      fail(Error::Kind::kModel,
           "{}: is missing; a PEFT adapter is a directory with adapter_config.json and "
           "adapter_model.safetensors",
           path_);
    try {
      json_ = Json::parse(read_file(path));
    } catch (const nlohmann::json::exception& error) {
      refuse("is not valid JSON ({}); copy the adapter again", printable(error.what()));
    }
    if (!json_.is_object()) refuse("is no JSON object; copy the adapter again");
    check_supported();
    rslora_ = json_.contains("use_rslora") && !is_off(json_["use_rslora"]);
    default_rank_ = rank(json_.value("r", Json()), "r");
    default_alpha_ = alpha(json_.value("lora_alpha", Json()), "lora_alpha");
  }

  std::string base_model() const { return text("base_model_name_or_path"); }

  // rank_pattern and alpha_pattern: keys are regular expressions for the end of a module path, after a dot.
  int64_t rank_of(const std::string& module) const {
    const Json* value = find_pattern("rank_pattern", module);
    return value == nullptr ? default_rank_ : rank(*value, "rank_pattern");
  }
  float alpha_of(const std::string& module) const {
    const Json* value = find_pattern("alpha_pattern", module);
    const double plain = value == nullptr ? default_alpha_ : alpha(*value, "alpha_pattern");
    // rsLoRA divides by the root of the rank (arXiv 2312.03732): alpha / sqrt(r) = (alpha * sqrt(r)) / r.
    return static_cast<float>(rslora_ ? plain * std::sqrt(static_cast<double>(rank_of(module))) : plain);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Error::Kind::kModel, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string text(const char* key) const {
    return json_.contains(key) && json_[key].is_string() ? json_[key].get<std::string>() : "";
  }

  void check_supported() const {
    if (text("peft_type") != "LORA")
      refuse("peft_type is {}, expected \"LORA\"; other adapters: {}", printable(text("peft_type")), kMerge);
    for (const Unsupported& option : kUnsupported)
      if (json_.contains(option.key) && !is_off(json_[option.key]))
        refuse("{} is {}, which is not supported; {}", option.key, printable(json_[option.key].dump()), option.way_out);
    const std::string beginning = text("init_lora_weights");
    if (!beginning.empty() && std::ranges::find(kPlainBeginnings, beginning) == std::end(kPlainBeginnings))
      refuse(
          "init_lora_weights is {}, which changes the base weights; save the adapter converted to plain LoRA "
          "(save_pretrained with path_initial_model_for_weight_conversion)",
          printable(beginning));
  }

  int64_t rank(const Json& value, const char* key) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 1)
      refuse("{} is {}, expected a whole number of at least 1; copy the adapter again", key, printable(value.dump()));
    return value.get<int64_t>();
  }
  double alpha(const Json& value, const char* key) const {
    if (!value.is_number() || !std::isfinite(static_cast<float>(value.get<double>())))
      refuse("{} is {}, expected a number; copy the adapter again", key, printable(value.dump()));
    return value.get<double>();
  }

  const Json* find_pattern(const char* key, const std::string& module) const {
    if (!json_.contains(key) || is_off(json_[key])) return nullptr;
    if (!json_[key].is_object()) refuse("{} is no JSON object; copy the adapter again", key);
    constexpr size_t kLongestPattern = 1000;  // std::regex recurses over its text
    for (const auto& [pattern, value] : json_[key].items()) {
      if (pattern.size() > kLongestPattern)
        refuse("{} has a key of {} characters, expected at most {}; write module paths instead", key, pattern.size(),
               kLongestPattern);
      try {
        if (std::regex_match(module, std::regex("(.*\\.)?(" + pattern + ")"))) return &value;
      } catch (const std::regex_error& error) {
        refuse("{} has the key {}, which is no regular expression that can be read ({}); write the module path instead",
               key, printable(pattern), error.what());
      }
    }
    return nullptr;
  }

  std::string path_;
  Json json_;
  bool rslora_ = false;
  int64_t default_rank_ = 0;
  double default_alpha_ = 0;
};

// The most common value: what differs from it goes into a pattern.
template <typename T>
T most_common(std::span<const AdaptedSite> sites, T LoraFactors::*field) {
  std::map<T, int> counts;
  for (const AdaptedSite& site : sites) ++counts[lora_of(site).*field];
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
    const std::string path = hf_module_path(site, *adapted.begin());
    if (site == SiteName::kLmHead || static_cast<int>(adapted.size()) == layers)
      targets.push_back(path.substr(path.rfind('.') + 1));
    else
      for (const int layer : adapted) targets.push_back(hf_module_path(site, layer));
  }
  return targets;
}

}  // namespace

void write_peft(const std::filesystem::path& directory, const AdapterFile& adapter, const AdapterBase& base) {
  PATINA_CHECK(!adapter.sites.empty(), "nothing to write");
  const int64_t rank = most_common(std::span(adapter.sites), &LoraFactors::rank);
  const float alpha = most_common(std::span(adapter.sites), &LoraFactors::alpha);
  Json ranks = Json::object(), alphas = Json::object();
  SafetensorsWriter weights;
  weights.set_metadata("format", "pt");
  for (const auto& [key, value] : adapter.metadata) {
    PATINA_CHECK(key.starts_with(kOwnMetadata), "metadata key {}", key);
    weights.set_metadata(key, value);
  }
  for (const AdaptedSite& site : adapter.sites) {
    const LoraFactors& lora = lora_of(site);
    const SitePlace place = place_of(site);
    const std::string module = hf_module_path(place.site, place.layer);
    if (lora.rank != rank) ranks[module] = lora.rank;
    if (lora.alpha != alpha) alphas[module] = number(lora.alpha);
    const auto tensor = [&](int factor) { return fmt::format("{}{}{}", kPrefix, module, kSuffix[factor]); };
    weights.add(tensor(FactorCollector::kA), DType::kF32, {lora.rank, site.in}, std::as_bytes(std::span(lora.a)));
    weights.add(tensor(FactorCollector::kB), DType::kF32, {site.out, lora.rank}, std::as_bytes(std::span(lora.b)));
  }
  const Json config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base.name},
      {"r", rank},
      {"lora_alpha", number(alpha)},
      {"lora_dropout", 0.0},
      {"target_modules", target_modules(adapter.sites, base.layers)},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"use_rslora", false},
      {"use_dora", false},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"modules_to_save", nullptr},
  };
  weights.write(directory / "adapter_model.safetensors");
  write_file(directory / "adapter_config.json", config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

AdapterFile read_peft(const std::filesystem::path& config_path, const std::filesystem::path& weights_path) {
  const Config config(config_path);
  if (!std::filesystem::exists(weights_path))
    fail(Error::Kind::kModel,
         "{}: is missing; weights in another form (adapter_model.bin) are not read: save the adapter "
         "with safe_serialization=True",
         weights_path.string());
  const SafetensorsFile file = SafetensorsFile::open(weights_path);
  FactorCollector collector(weights_path);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    std::string_view module = tensor.name;
    int factor = FactorCollector::kA;
    if (module.ends_with(kSuffix[FactorCollector::kB])) factor = FactorCollector::kB;
    std::optional<SitePlace> place;
    if (module.ends_with(kSuffix[factor])) {
      module.remove_suffix(kSuffix[factor].size());
      place = parse_hf_module_path(module);
      // A headless base (AutoModel) has no "model." of its own: "base_model.model.layers.3...".
      constexpr std::string_view kHeadless = "base_model.";
      if (!place && module.starts_with(kHeadless)) place = parse_hf_module_path(module.substr(kHeadless.size()));
    }
    if (!place)
      fail(Error::Kind::kModel,
           "{}: tensor {} is not a LoRA factor of a known layer, expected names such as {}{}{}; train "
           "with target_modules among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head",
           weights_path.string(), printable(tensor.name), kPrefix, hf_module_path(SiteName::kQ, 0), kSuffix[0]);
    collector.add(*place, static_cast<FactorCollector::Factor>(factor), tensor.name, tensor.dtype, tensor.shape,
                  tensor.data);
  }
  AdapterFile adapter;
  adapter.sites = collector.sites();
  for (AdaptedSite& site : adapter.sites) {
    auto& lora = std::get<LoraFactors>(site.factors);
    const SitePlace place = place_of(site);
    const std::string module = hf_module_path(place.site, place.layer);
    if (const int64_t rank = config.rank_of(module); rank != lora.rank)
      fail(Error::Kind::kModel,
           "{}: the factors of {} have rank {}, expected {} as {} says; the two files are not of one "
           "adapter",
           weights_path.string(), module, lora.rank, rank, config_path.string());
    lora.alpha = config.alpha_of(module);
  }
  adapter.base_model = config.base_model();
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(kOwnMetadata)) adapter.metadata[key] = value;
  return adapter;
}

}  // namespace patina
