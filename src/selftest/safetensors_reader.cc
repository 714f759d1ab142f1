#include "selftest/safetensors_reader.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace patina {

ReadSafetensors read_safetensors(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.substr(0, sizeof header_bytes).c_str(), sizeof header_bytes);
  const std::string data = bytes.substr(sizeof header_bytes + header_bytes);
  ReadSafetensors file;
  const auto header = nlohmann::json::parse(bytes.substr(sizeof header_bytes, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    ReadTensor& tensor = file.tensors[name];
    tensor.dtype = entry.at("dtype").get<std::string>();
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    const size_t begin = entry.at("data_offsets").at(0).get<size_t>(),
                 end = entry.at("data_offsets").at(1).get<size_t>();
    const std::string numbers = data.substr(begin, end - begin);
    if (tensor.dtype != "F32") continue;
    tensor.values.resize(numbers.size() / sizeof(float));
    std::memcpy(tensor.values.data(), numbers.data(), tensor.values.size() * sizeof(float));
  }
  return file;
}

}  // namespace patina
