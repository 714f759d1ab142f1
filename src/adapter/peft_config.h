// adapter_config.json of a PEFT directory, read. Inside the reader of PEFT's format.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace patina {

// Error(kModel), in every function, naming the file, the key and its value where something cannot be read, or would
// change what the factors mean.
class PeftConfig {
 public:
  explicit PeftConfig(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  bool is_lokr() const { return is_lokr_; }
  bool is_dora() const;
  std::string base_model() const { return text("base_model_name_or_path"); }

  // By rank_pattern and alpha_pattern, whose keys are regular expressions for the end of a module path, after a dot;
  // the first that matches counts. alpha is what makes alpha / rank the true scale, also of rsLoRA.
  int64_t rank_of(const std::string& module) const;
  float alpha_of(const std::string& module) const;
  // Whether it says which modules are adapted: everything that PEFT saves does.
  bool tells_targets() const;
  // Whether PEFT adapts this module of the base, by target_modules and what narrows it.
  bool targets(const std::string& module, int layer) const;

 private:
  using Json = nlohmann::ordered_json;  // ordered: the first pattern that matches counts

  template <typename... Args>
  [[noreturn]] void refuse(std::string_view format, Args&&... args) const;
  std::string text(const char* key) const;
  void check_supported() const;
  int64_t rank(const Json& value, const char* key) const;
  double alpha(const Json& value, const char* key) const;
  bool matches(const std::string& pattern, const std::string& module, const char* key) const;
  const Json* find_pattern(const char* key, const std::string& module) const;
  bool names_module(const char* key, const std::string& module) const;

  std::string path_;
  Json json_;
  bool is_lokr_ = false, rslora_ = false;
  int64_t default_rank_ = 0;
  double default_alpha_ = 0;
};

}  // namespace patina
