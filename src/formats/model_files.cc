#include "formats/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "formats/printable.h"

namespace patina {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kIndexEnd = ".safetensors.index.json";

json read_object(const fs::path& path) {
  json read;
  try {
    read = json::parse(read_file(path));
  } catch (const json::exception& error) {
    fail(Error::Kind::kModel, "{}: is not valid JSON ({}); get the file again", path.string(), printable(error.what()));
  }
  if (!read.is_object()) fail(Error::Kind::kModel, "{}: expected a JSON object; get the file again", path.string());
  return read;
}

// The index, or else the only model file, of a directory.
fs::path model_in(const fs::path& directory) {
  std::vector<fs::path> indices, files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kIndexEnd))
      indices.push_back(entry.path());
    else if (name.ends_with(".safetensors") || name.ends_with(".gguf"))
      files.push_back(entry.path());
  }
  const std::vector<fs::path>& found = indices.empty() ? files : indices;
  if (found.size() != 1)
    fail(Error::Kind::kModel,
         "{}: holds {} model files, expected one .safetensors or .gguf file, or one index of several; give the file "
         "itself",
         directory.string(), found.size());
  return found.front();
}

// Which tensor an index says is where.
std::map<std::string, fs::path> read_index(const fs::path& path) {
  const json index = read_object(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    fail(Error::Kind::kModel, "{}: has no weight_map, expected an object of tensor names and files; get the file again",
         path.string());
  std::map<std::string, fs::path> places;
  for (const auto& [tensor, file] : map->items()) {
    const fs::path name = file.is_string() ? file.get<std::string>() : std::string();
    if (name.empty() || name != name.filename() || name == ".." || name == ".")
      fail(Error::Kind::kModel, "{}: tensor {} lies in {}, expected the name of a file beside the index", path.string(),
           printable(tensor), printable(file.dump()));
    places[tensor] = path.parent_path() / name;
  }
  return places;
}

template <typename FileTensor>
ModelTensor entry(const FileTensor& tensor) {
  return {tensor.name, tensor.dtype, tensor.shape, tensor.bytes, tensor.data};
}

}  // namespace

ModelFiles::ModelFiles() : config_(std::make_unique<json>()) {}
ModelFiles::~ModelFiles() = default;
ModelFiles::ModelFiles(ModelFiles&&) noexcept = default;
ModelFiles& ModelFiles::operator=(ModelFiles&&) noexcept = default;

ModelFiles ModelFiles::open(const fs::path& path) {
  ModelFiles model;
  std::error_code ignored;  // opening the file says what is wrong with it
  model.path_ = fs::is_directory(path, ignored) ? model_in(path) : path;
  const std::string name = model.path_.filename().string();
  if (name.ends_with(kIndexEnd)) {
    const std::map<std::string, fs::path> places = read_index(model.path_);
    std::set<fs::path> files;
    for (const auto& [tensor, file] : places) files.insert(file);
    for (const fs::path& file : files) {
      const SafetensorsFile& opened = model.safetensors_.emplace_back(SafetensorsFile::open(file));
      for (const auto& [tensor, place] : places) {
        if (place != file) continue;
        const SafetensorsTensor* found = opened.find(tensor);
        if (found == nullptr)
          fail(Error::Kind::kModel, "{}: tensor {} is missing, which {} says is there; get the files again",
               file.string(), printable(tensor), model.path_.string());
        model.tensors_.push_back(entry(*found));
      }
    }
  } else if (name.ends_with(".safetensors")) {
    for (const SafetensorsTensor& tensor :
         model.safetensors_.emplace_back(SafetensorsFile::open(model.path_)).tensors())
      model.tensors_.push_back(entry(tensor));
  } else {
    model.gguf_ = std::make_unique<GgufFile>(GgufFile::open(model.path_));
    for (const GgufTensor& tensor : model.gguf_->tensors()) model.tensors_.push_back(entry(tensor));
  }
  std::ranges::sort(model.tensors_, {}, &ModelTensor::name);
  const fs::path config = model.path_.parent_path() / "config.json";
  if (model.gguf_ == nullptr && fs::exists(config, ignored)) *model.config_ = read_object(config);
  return model;
}

const ModelTensor* ModelFiles::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &ModelTensor::name);
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

std::vector<std::span<const std::byte>> ModelFiles::maps() const {
  std::vector<std::span<const std::byte>> maps;
  if (gguf_ != nullptr) maps.push_back(gguf_->mapped());
  for (const SafetensorsFile& file : safetensors_) maps.push_back(file.mapped());
  return maps;
}

std::vector<fs::path> ModelFiles::files() const {
  std::vector<fs::path> files;
  if (gguf_ != nullptr) files.push_back(gguf_->path());
  for (const SafetensorsFile& file : safetensors_) files.push_back(file.path());
  return files;
}

int64_t ModelFiles::file_bytes() const {
  int64_t bytes = 0;
  for (const std::span<const std::byte> map : maps()) bytes += std::ssize(map);
  return bytes;
}

}  // namespace patina
