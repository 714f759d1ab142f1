// GGUF model files (versions 2 and 3), read in place through a memory map, and written, tensor by tensor.
// Source: docs/gguf.md of the ggml project. Every length, count and offset of a file is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "formats/gguf_layout.h"
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

// A metadata entry as it lies in the file: type and value.
struct GgufEntry {
  std::string key;
  std::string_view encoded;  // inside the map
};

class GgufFile {
 public:
  // Error(kModel) naming the file, the key or tensor, what was expected and found. Version 1, big-endian and split
  // files (split.count > 1), nested arrays and tensor types outside the dtype table are refused by name. A type of the
  // table may still lack a decoder: ask is_decodable().
  static GgufFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_.path(); }
  std::span<const std::byte> mapped() const { return map_.bytes(); }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }                  // of tensors in the file
  std::span<const std::byte> bytes() const { return map_.bytes(); }  // the whole file
  int64_t file_bytes() const { return static_cast<int64_t>(map_.bytes().size()); }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  std::span<const GgufEntry> entries() const { return entries_; }  // the metadata in the file's order
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
  uint64_t alignment_ = kGgufDefaultAlignment;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// Takes the next bytes of a tensor.
using GgufSink = FunctionRef<void(std::span<const std::byte> bytes)>;
// Gives all bytes of a tensor to the sink, in order. It is called by write(), once every write.
using GgufSource = std::function<void(GgufSink sink)>;

// Writes a GGUF v3 file atomically. A key or tensor name given twice is a broken invariant; but set() replaces what
// copy_metadata() brought.
class GgufWriter {
 public:
  // All metadata of a file, bit for bit, and its alignment; before any set().
  void copy_metadata(const GgufFile& file);
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
  // The same without holding the data.
  void add_tensor(std::string name, DType dtype, const Shape& shape, GgufSource source);
  // `last_check` runs when all is written but not yet in place; what it or a source throws leaves no file.
  void write(
      const std::filesystem::path& path, FunctionRef<void()> last_check = [] {}) const;

 private:
  struct Entry {
    std::string key, encoded;  // encoded = value type and value
    bool copied;
  };
  struct PendingTensor {
    std::string name;
    DType dtype;
    Shape shape;
    GgufSource source;
    uint64_t bytes() const { return static_cast<uint64_t>(bytes_of(dtype, shape.elements())); }
  };
  void add_entry(std::string key, std::string encoded);

  uint64_t alignment_ = kGgufDefaultAlignment;
  std::vector<Entry> entries_;
  std::vector<PendingTensor> tensors_;
};

}  // namespace patina
