// The tensors of a model, whatever holds them: a GGUF file, a safetensors file, or several with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "tensor/tensor.h"

namespace patina {

struct ModelTensor {
  std::string name;  // as its file has it
  DType dtype;
  Shape shape;
  int64_t bytes;
  const std::byte* data;  // inside a map; of safetensors perhaps not aligned to its elements
};

class ModelFiles {
 public:
  // A .gguf or .safetensors file, an index (model.safetensors.index.json) or a directory that holds one index or one
  // model file. Error(kModel) naming the file and what is wrong: a damaged file, an index that names a file outside its
  // directory or a tensor that is not in the file it names, a directory without a model or with several.
  static ModelFiles open(const std::filesystem::path& path);
  ~ModelFiles();
  ModelFiles(ModelFiles&&) noexcept;
  ModelFiles& operator=(ModelFiles&&) noexcept;

  const std::filesystem::path& path() const { return path_; }  // the file or index itself
  std::span<const ModelTensor> tensors() const { return tensors_; }
  const ModelTensor* find(std::string_view name) const;
  const GgufFile* gguf() const { return gguf_.get(); }  // null for safetensors
  // config.json beside safetensors; null where there is none. Error(kModel) where it is no JSON object.
  const nlohmann::json& config() const { return *config_; }
  std::vector<std::span<const std::byte>> maps() const;
  std::vector<std::filesystem::path> files() const;  // as maps()
  int64_t file_bytes() const;

 private:
  ModelFiles();

  std::filesystem::path path_;
  std::unique_ptr<GgufFile> gguf_;
  std::vector<SafetensorsFile> safetensors_;
  std::vector<ModelTensor> tensors_;  // sorted by name
  std::unique_ptr<nlohmann::json> config_;
};

}  // namespace patina
