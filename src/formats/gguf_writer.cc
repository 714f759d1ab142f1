#include <algorithm>
#include <bit>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/gguf_layout.h"

namespace patina {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

template <typename T>
void put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_type(std::string* out, GgufType type) { put(out, static_cast<uint32_t>(type)); }
void put_string(std::string* out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out->append(text);
}

template <typename T>
std::string encode_scalar(GgufType type, T value) {
  std::string out;
  put_type(&out, type);
  put(&out, value);
  return out;
}

template <typename T>
std::string encode_array(GgufType type, const std::vector<T>& values) {
  std::string out;
  put_type(&out, GgufType::kArray);
  put_type(&out, type);
  put(&out, uint64_t{values.size()});
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, std::string>) {
      put_string(&out, value);
    } else {
      put(&out, value);
    }
  }
  return out;
}

}  // namespace

void GgufWriter::set(std::string key, std::string value) {
  std::string encoded;
  put_type(&encoded, GgufType::kString);
  put_string(&encoded, value);
  add_entry(std::move(key), std::move(encoded));
}
void GgufWriter::set(std::string key, uint32_t value) {
  add_entry(std::move(key), encode_scalar(GgufType::kU32, value));
}
void GgufWriter::set(std::string key, float value) { add_entry(std::move(key), encode_scalar(GgufType::kF32, value)); }
void GgufWriter::set(std::string key, bool value) {
  add_entry(std::move(key), encode_scalar(GgufType::kBool, static_cast<uint8_t>(value)));
}
void GgufWriter::set(std::string key, std::vector<std::string> values) {
  add_entry(std::move(key), encode_array(GgufType::kString, values));
}
void GgufWriter::set(std::string key, std::vector<float> values) {
  add_entry(std::move(key), encode_array(GgufType::kF32, values));
}
void GgufWriter::set(std::string key, std::vector<int32_t> values) {
  add_entry(std::move(key), encode_array(GgufType::kI32, values));
}

void GgufWriter::add_entry(std::string key, std::string encoded) {
  PATINA_CHECK(!key.empty() && key.size() <= kGgufMaxNameBytes, "key {}", key);
  for (Entry& entry : entries_) {
    if (entry.key != key) continue;
    PATINA_CHECK(entry.copied, "key {} is set twice", key);
    entry = {std::move(key), std::move(encoded), false};
    return;
  }
  entries_.push_back({std::move(key), std::move(encoded), false});
}

void GgufWriter::copy_metadata(const GgufFile& file) {
  PATINA_CHECK(entries_.empty(), "{} entries before those of {}", entries_.size(), file.path().string());
  for (const GgufEntry& entry : file.entries()) entries_.push_back({entry.key, std::string(entry.encoded), true});
  alignment_ = file.alignment();
}

void GgufWriter::add_tensor(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data) {
  PATINA_CHECK(std::ssize(data) == bytes_of(dtype, shape.elements()), "tensor {}: {} bytes for {} of {}", name,
               data.size(), shape.str(), info(dtype).name);
  add_tensor(std::move(name), dtype, shape,
             [copy = std::vector(data.begin(), data.end())](GgufSink sink) { sink(copy); });
}

void GgufWriter::add_tensor(std::string name, DType dtype, const Shape& shape, GgufSource source) {
  PATINA_CHECK(info(dtype).gguf_type >= 0, "GGUF has no type {}", info(dtype).name);
  PATINA_CHECK(!name.empty() && name.size() <= kGgufMaxNameBytes, "tensor name {}", name);
  PATINA_CHECK(shape.rank() > 0 && shape.elements() > 0 && shape[shape.rank() - 1] % info(dtype).block_values == 0,
               "tensor {} of {} with shape {}", name, info(dtype).name, shape.str());
  for (const PendingTensor& tensor : tensors_) PATINA_CHECK(tensor.name != name, "tensor {} is added twice", name);
  tensors_.push_back({std::move(name), dtype, shape, std::move(source)});
}

void GgufWriter::write(const std::filesystem::path& path, FunctionRef<void()> last_check) const {
  std::string header;
  header.append(kGgufMagic);
  put(&header, kGgufVersion);
  put(&header, uint64_t{tensors_.size()});
  put(&header, uint64_t{entries_.size()});
  for (const Entry& entry : entries_) {
    put_string(&header, entry.key);
    header.append(entry.encoded);
  }
  uint64_t offset = 0;
  for (const PendingTensor& tensor : tensors_) {
    put_string(&header, tensor.name);
    put(&header, static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) put(&header, tensor.shape[axis]);
    put(&header, info(tensor.dtype).gguf_type);
    put(&header, offset);
    offset = gguf_align(offset + tensor.bytes(), alignment_);
  }
  header.resize(gguf_align(header.size(), alignment_), '\0');

  AtomicFile file(path);
  file.write(header);
  for (const PendingTensor& tensor : tensors_) {
    const int64_t begin = file.written_bytes();
    tensor.source([&](std::span<const std::byte> bytes) { file.write(bytes); });
    const auto written = static_cast<uint64_t>(file.written_bytes() - begin);
    PATINA_CHECK(written == tensor.bytes(), "tensor {}: {} bytes for {} of {}", tensor.name, written,
                 tensor.shape.str(), info(tensor.dtype).name);
    file.write(std::string(gguf_align(written, alignment_) - written, '\0'));
  }
  last_check();
  file.commit();
}

}  // namespace patina
