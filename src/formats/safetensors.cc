#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "formats/printable.h"

namespace patina {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "values are read and written as they lie in memory");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kHeaderAlignment = 8;
constexpr int kMaxDepth = 3;  // object of tensors, object of fields, array of numbers
constexpr std::string_view kMetadataKey = "__metadata__";

class Reader {
 public:
  explicit Reader(const MappedFile& map) : path_(map.path().string()), bytes_(map.bytes()) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Error::Kind::kModel, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Parses the header; data() is what follows it.
  json read_header() {
    uint64_t length = 0;
    if (bytes_.size() < sizeof length) {
      refuse("has {} bytes, too few for a safetensors header; download it again", bytes_.size());
    }
    std::memcpy(&length, bytes_.data(), sizeof length);
    const uint64_t rest = bytes_.size() - sizeof length;
    if (length > rest || length > kMaxHeaderBytes) {
      refuse("its header claims {} bytes, expected at most {}; it is damaged or no safetensors file", length,
             std::min(rest, kMaxHeaderBytes));
    }
    data_ = bytes_.subspan(sizeof length + length);
    const auto* text = reinterpret_cast<const char*>(bytes_.data()) + sizeof length;
    json header;
    try {
      header = json::parse(text, text + length, [this](int depth, json::parse_event_t event, json& value) {
        check_structure(depth, event, value);
        return true;
      });
    } catch (const json::exception& error) {
      refuse("its header is not valid JSON ({}); it is damaged or no safetensors file", printable(error.what()));
    }
    if (!header.is_object()) refuse("its header is no JSON object; it is damaged or no safetensors file");
    return header;
  }

  std::map<std::string, std::string> read_metadata(const json& entries) const {
    if (!entries.is_object()) refuse("__metadata__ is no JSON object; the file is damaged");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : entries.items()) {
      if (!value.is_string()) refuse("__metadata__ entry {} is no string; the file is damaged", printable(key));
      metadata.emplace(key, value.get<std::string>());
    }
    return metadata;
  }

  SafetensorsTensor read_tensor(const std::string& name, const json& entry) const {
    const auto field = [&](const char* key) -> const json& {
      if (!entry.is_object() || !entry.contains(key)) {
        refuse("tensor {} has no {}; the file is damaged", printable(name), key);
      }
      return entry.at(key);
    };
    SafetensorsTensor tensor{};
    tensor.name = name;

    const json& dtype = field("dtype");
    const std::string dtype_text = dtype.is_string() ? dtype.get<std::string>() : "";
    const auto known = dtype_from_safetensors(dtype_text);
    if (!known) {
      refuse("tensor {} has dtype {}, which is not supported; supported: {}", printable(name), printable(dtype_text),
             supported_dtypes());
    }
    tensor.dtype = *known;

    const std::vector<int64_t> dims = naturals(name, "shape", field("shape"));
    if (dims.size() > kMaxRank) {
      refuse("tensor {} has {} dimensions, expected at most {}", printable(name), dims.size(), kMaxRank);
    }
    tensor.shape = Shape(std::span(dims));
    int64_t expected = info(tensor.dtype).block_bytes;
    for (const int64_t dim : dims) {
      if (__builtin_mul_overflow(expected, dim, &expected)) {
        refuse("tensor {} has more bytes than 64 bits can count; the file is damaged", printable(name));
      }
    }

    const std::vector<int64_t> offsets = naturals(name, "data_offsets", field("data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > std::ssize(data_)) {
      refuse("tensor {} has data_offsets {}, expected two ascending offsets up to {}; download the file again",
             printable(name), entry.at("data_offsets").dump(), data_.size());
    }
    tensor.bytes = offsets[1] - offsets[0];
    if (tensor.bytes != expected) {
      refuse("tensor {} has {} bytes, expected {} for {} of {}; the file is damaged", printable(name), tensor.bytes,
             expected, tensor.shape.str(), info(tensor.dtype).name);
    }
    tensor.data = data_.data() + offsets[0];
    return tensor;
  }

  // The tensors must fill the data from its start to its end, each byte once.
  void check_coverage(std::span<const SafetensorsTensor> tensors) const {
    std::vector<const SafetensorsTensor*> ordered;
    for (const SafetensorsTensor& tensor : tensors) ordered.push_back(&tensor);
    std::ranges::sort(ordered, [](const auto* a, const auto* b) {
      return a->data != b->data ? a->data < b->data : a->bytes < b->bytes;
    });
    const std::byte* end = data_.data();
    for (const SafetensorsTensor* tensor : ordered) {
      if (tensor->data != end) {
        refuse("tensor {} begins at byte {} of the data, expected {}; the file has {}", printable(tensor->name),
               tensor->data - data_.data(), end - data_.data(), tensor->data < end ? "overlapping tensors" : "a hole");
      }
      end += tensor->bytes;
    }
    if (end != data_.data() + data_.size()) {
      refuse("has {} bytes of data, its tensors fill {}; download it again", data_.size(), end - data_.data());
    }
  }

 private:
  // Bounds the depth, and refuses keys that come twice in one object (the parser would keep the last).
  void check_structure(int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxDepth) {
      refuse("its header is nested deeper than {} levels; it is damaged or no safetensors file", kMaxDepth);
    }
    if (event == Event::object_start) keys_[depth].clear();
    if (event == Event::key && !keys_[depth - 1].insert(value.get<std::string>()).second) {
      refuse("its header has the key {} twice; the file is damaged", printable(value.get<std::string>()));
    }
  }

  std::vector<int64_t> naturals(const std::string& name, const char* field, const json& list) const {
    const auto is_natural = [](const json& item) {
      return item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
    };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_natural)) {
      refuse("tensor {} has a {} that is no list of natural numbers below 2^63; the file is damaged", printable(name),
             field);
    }
    return list.get<std::vector<int64_t>>();
  }

  static std::string supported_dtypes() {
    std::string names;
    for (const DTypeInfo& row : all_dtypes()) {
      if (!row.safetensors.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.safetensors);
    }
    return names;
  }

  std::string path_;
  std::span<const std::byte> bytes_, data_;
  std::set<std::string> keys_[kMaxDepth];
};

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.map_ = MappedFile(path);
  Reader reader(file.map_);
  const json header = reader.read_header();
  for (const auto& [name, entry] : header.items()) {  // sorted by name
    if (name == kMetadataKey) {
      file.metadata_ = reader.read_metadata(entry);
    } else {
      file.tensors_.push_back(reader.read_tensor(name, entry));
    }
  }
  reader.check_coverage(file.tensors_);
  return file;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

void SafetensorsWriter::add(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data) {
  std::vector<std::byte> copy(data.begin(), data.end());
  add_view(name, dtype, shape, copy);
  tensors_.at(name).copy = std::move(copy);  // the bytes stay where they are
}

void SafetensorsWriter::add_view(std::string name, DType dtype, const Shape& shape, std::span<const std::byte> data) {
  PATINA_CHECK(!info(dtype).safetensors.empty(), "safetensors has no type {}", info(dtype).name);
  PATINA_CHECK(name != kMetadataKey, "tensor name {}", name);
  PATINA_CHECK(std::ssize(data) == bytes_of(dtype, shape.elements()), "tensor {}: {} bytes for {} of {}", name,
               data.size(), shape.str(), info(dtype).name);
  const auto [place, inserted] = tensors_.try_emplace(std::move(name));
  PATINA_CHECK(inserted, "tensor {} is added twice", place->first);
  place->second = {dtype, shape, data, {}};
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  // Wide elements first, so that every tensor is aligned to its element; then by name.
  std::vector<const decltype(tensors_)::value_type*> ordered;
  for (const auto& item : tensors_) ordered.push_back(&item);
  std::ranges::stable_sort(ordered, std::ranges::greater{},
                           [](const auto* item) { return info(item->second.dtype).block_bytes; });

  json header = json::object();
  if (!metadata_.empty()) header[kMetadataKey] = metadata_;
  size_t offset = 0;
  for (const auto* item : ordered) {
    const Pending& tensor = item->second;
    header[item->first] = {{"dtype", info(tensor.dtype).safetensors},
                           {"shape", std::vector<int64_t>(tensor.shape.dims().begin(), tensor.shape.dims().end())},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& error) {
    fail(Error::Kind::kData, "{}: a tensor name or metadata value is not valid UTF-8 ({})", path.string(),
         error.what());
  }
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t length = text.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const auto* item : ordered) file.write(item->second.data);
  file.commit();
}

}  // namespace patina
