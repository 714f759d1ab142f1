// safetensors files: a JSON header and dense tensors, read in place through a memory map and written atomically.
// Source: the format section of the safetensors project's README. Every length and offset of a file is checked before
// use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace patina {

struct SafetensorsTensor {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t bytes;
  const std::byte* data;  // inside the map; may be unaligned: copy before reading as floats
};

class SafetensorsFile {
 public:
  // Error(kModel) naming the file, the tensor, what was expected and found. Tensors of unknown dtype, overlapping, with
  // holes, or past the end are refused; so are rank > 4, duplicate names and headers over 100 MB.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_.path(); }
  std::span<const std::byte> mapped() const { return map_.bytes(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }  // sorted by name
  const SafetensorsTensor* find(std::string_view name) const;

 private:
  MappedFile map_;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsTensor> tensors_;
};

class SafetensorsWriter {
 public:
  void set_metadata(std::string key, std::string value) { metadata_[std::move(key)] = std::move(value); }
  // data is copied, already in the stored type.
  void add(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data);
  // The same without a copy: data must stay until write().
  void add_view(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data);
  void write(const std::filesystem::path& path) const;

 private:
  struct Pending {
    DType dtype;
    Shape shape;
    std::span<const std::byte> data;
    std::vector<std::byte> copy;  // empty for a view
  };
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Pending> tensors_;
};

}  // namespace patina
