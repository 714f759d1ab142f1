// A reader of safetensors files for the rungs on exported files: short, and apart from the one that it checks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace patina {

struct ReadTensor {
  std::string dtype;  // as the file has it: "F32"
  std::vector<int64_t> shape;
  std::vector<float> values;  // of F32
};
struct ReadSafetensors {
  std::map<std::string, ReadTensor> tensors;
  std::map<std::string, std::string> metadata;
};
// Throws what the parser of JSON throws, or std::out_of_range, where the file is none.
ReadSafetensors read_safetensors(const std::filesystem::path& path);

}  // namespace patina
