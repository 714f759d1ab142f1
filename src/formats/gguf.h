// GGUF model files (versions 2 and 3), read in place through a memory map, and a writer for adapters and test models.
// Source: docs/gguf.md of the ggml project. Every length, count and offset of a file is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace patina {

struct GgufTensor {
  std::string name;
  DType dtype;
  Shape shape;           // outermost first (GGUF's ne reversed)
  int64_t offset_bytes;  // from the start of the file
  int64_t bytes;
  const std::byte* data;  // inside the map
};

// A metadata value. Arrays keep their element kind; strings point into the map.
using GgufScalar = std::variant<uint64_t, int64_t, double, bool, std::string_view>;
struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>>
      values;
  size_t size() const;
};
using GgufValue = std::variant<GgufScalar, GgufArray>;

class GgufFile {
 public:
  // Error(kModel) naming the file, the key or tensor, what was expected and found. Version 1, big-endian and split
  // files (split.count > 1), nested arrays and tensor types outside the dtype table are refused by name. A type of the
  // table may still lack a decoder: ask is_decodable().
  static GgufFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_.path(); }
  uint32_t version() const { return version_; }
  std::span<const std::byte> bytes() const { return map_.bytes(); }  // the whole file
  int64_t file_bytes() const { return static_cast<int64_t>(map_.bytes().size()); }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed access. The `require_` forms throw Error(kModel) naming key and file where it is missing; every form throws
  // where the key has another kind of value. Integers of any width convert where the value fits.
  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  int64_t require_int(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string require_string(std::string_view key) const;
  int64_t int_or(std::string_view key, int64_t fallback) const;
  double float_or(std::string_view key, double fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;
  std::vector<std::string_view> strings_or_empty(std::string_view key) const;
  std::vector<int64_t> ints_or_empty(std::string_view key) const;
  std::vector<double> floats_or_empty(std::string_view key) const;

 private:
  MappedFile map_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// Writes a GGUF v3 file atomically. A key or tensor name given twice is a broken invariant.
class GgufWriter {
 public:
  void set(std::string key, std::string value);
  void set(std::string key, const char* value) { set(std::move(key), std::string(value)); }  // else a literal is a bool
  void set(std::string key, uint32_t value);
  void set(std::string key, float value);
  void set(std::string key, bool value);
  void set(std::string key, std::vector<std::string> values);
  void set(std::string key, std::vector<float> values);
  void set(std::string key, std::vector<int32_t> values);
  // shape outermost first; data is copied, already in the stored type.
  void add_tensor(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data);
  void write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string key, encoded;  // encoded = value type and value
  };
  struct PendingTensor {
    std::string name;
    DType dtype;
    Shape shape;
    std::vector<std::byte> data;
  };
  void add_entry(std::string key, std::string encoded);

  std::vector<Entry> entries_;
  std::vector<PendingTensor> tensors_;
};

}  // namespace patina
