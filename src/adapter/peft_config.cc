#include "adapter/peft_config.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "formats/printable.h"

namespace patina {
namespace {

using Json = nlohmann::ordered_json;

// Options that change what the factors mean. Off: absent, null, false, "none" or empty.
struct Unsupported {
  std::string_view key, way_out;
};
constexpr std::string_view kMerge = "merge it into its base with PEFT's merge_and_unload() and use the merged model";
constexpr Unsupported kUnsupported[] = {
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
constexpr std::string_view kPlainBeginnings[] = {"gaussian", "eva", "orthogonal", "lycoris"};

bool is_off(const Json& value) {
  return value.is_null() || value == false || value == "none" || value == "" ||
         (value.is_structured() && value.empty());
}

}  // namespace

template <typename... Args>
void PeftConfig::refuse(std::string_view format, Args&&... args) const {
  fail(Error::Kind::kModel, "{}: {}", path_, fmt::format(fmt::runtime(format), std::forward<Args>(args)...));
}

PeftConfig::PeftConfig(const std::filesystem::path& path) : path_(path.string()) {
  if (!std::filesystem::exists(path))
    refuse("is missing; a PEFT adapter is a directory with adapter_config.json and adapter_model.safetensors");
  try {
    json_ = Json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    refuse("is not valid JSON ({}); copy the adapter again", printable(error.what()));
  }
  if (!json_.is_object()) refuse("is no JSON object; copy the adapter again");
  check_supported();
  is_lokr_ = text("peft_type") == "LOKR";
  rslora_ = json_.contains("use_rslora") && !is_off(json_["use_rslora"]);
  const char* alpha_key = is_lokr_ ? "alpha" : "lora_alpha";
  default_rank_ = rank(json_.value("r", Json()), "r");
  default_alpha_ = alpha(json_.value(alpha_key, Json()), alpha_key);
}

bool PeftConfig::is_dora() const { return json_.contains("use_dora") && !is_off(json_["use_dora"]); }

int64_t PeftConfig::rank_of(const std::string& module) const {
  const Json* value = find_pattern("rank_pattern", module);
  return value == nullptr ? default_rank_ : rank(*value, "rank_pattern");
}

float PeftConfig::alpha_of(const std::string& module) const {
  const Json* value = find_pattern("alpha_pattern", module);
  const double plain = value == nullptr ? default_alpha_ : alpha(*value, "alpha_pattern");
  // rsLoRA divides by the root of the rank (arXiv 2312.03732): alpha / sqrt(r) = (alpha * sqrt(r)) / r.
  return static_cast<float>(rslora_ ? plain * std::sqrt(static_cast<double>(rank_of(module))) : plain);
}

bool PeftConfig::tells_targets() const { return !is_off(json_.value("target_modules", Json())); }

bool PeftConfig::targets(const std::string& module, int layer) const {
  if (names_module("exclude_modules", module) || !names_module("target_modules", module)) return false;
  const Json chosen = json_.value("layers_to_transform", Json());
  if (is_off(chosen) || layer < 0) return true;
  return chosen.is_array() ? std::ranges::find(chosen, Json(layer)) != chosen.end() : chosen == layer;
}

// A list of names, each a module's path or what it ends with after a dot; or a regular expression for the whole path.
bool PeftConfig::names_module(const char* key, const std::string& module) const {
  const Json value = json_.value(key, Json());
  if (value.is_string()) {
    if (value == "all-linear") return module != "lm_head";
    return matches(value.get<std::string>(), module, key);
  }
  return value.is_array() && std::ranges::any_of(value, [&](const Json& item) {
           return item.is_string() && (item == module || module.ends_with(fmt::format(".{}", item.get<std::string>())));
         });
}

std::string PeftConfig::text(const char* key) const {
  return json_.contains(key) && json_[key].is_string() ? json_[key].get<std::string>() : "";
}

void PeftConfig::check_supported() const {
  if (const std::string type = text("peft_type"); type != "LORA" && type != "LOKR")
    refuse("peft_type is {}, expected \"LORA\" or \"LOKR\"; other adapters: {}", printable(type), kMerge);
  for (const Unsupported& option : kUnsupported)
    if (json_.contains(option.key) && !is_off(json_[option.key]))
      refuse("{} is {}, which is not supported; {}", option.key, printable(json_[option.key].dump()), option.way_out);
  for (const char* key : {"init_lora_weights", "init_weights"}) {
    const std::string beginning = text(key);
    if (!beginning.empty() && std::ranges::find(kPlainBeginnings, beginning) == std::end(kPlainBeginnings))
      refuse(
          "{} is {}, which changes the base weights; save the adapter converted to plain LoRA (save_pretrained with "
          "path_initial_model_for_weight_conversion)",
          key, printable(beginning));
  }
}

int64_t PeftConfig::rank(const Json& value, const char* key) const {
  if (!value.is_number_integer() || value.get<int64_t>() < 1)
    refuse("{} is {}, expected a whole number of at least 1; copy the adapter again", key, printable(value.dump()));
  return value.get<int64_t>();
}

double PeftConfig::alpha(const Json& value, const char* key) const {
  if (!value.is_number() || !std::isfinite(static_cast<float>(value.get<double>())))
    refuse("{} is {}, expected a number; copy the adapter again", key, printable(value.dump()));
  return value.get<double>();
}

bool PeftConfig::matches(const std::string& pattern, const std::string& module, const char* key) const {
  constexpr size_t kLongestPattern = 1000;  // std::regex recurses over its text
  if (pattern.size() > kLongestPattern)
    refuse("{} has a pattern of {} characters, expected at most {}; write module paths instead", key, pattern.size(),
           kLongestPattern);
  try {
    return std::regex_match(module, std::regex(pattern));
  } catch (const std::regex_error& error) {
    refuse("{} has {}, which is no regular expression that can be read ({}); write the module path instead", key,
           printable(pattern), error.what());
  }
}

const PeftConfig::Json* PeftConfig::find_pattern(const char* key, const std::string& module) const {
  if (!json_.contains(key) || is_off(json_[key])) return nullptr;
  if (!json_[key].is_object()) refuse("{} is no JSON object; copy the adapter again", key);
  for (const auto& [pattern, value] : json_[key].items())
    if (matches(fmt::format("(.*\\.)?({})", pattern), module, key)) return &value;
  return nullptr;
}

}  // namespace patina
