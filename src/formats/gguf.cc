#include "formats/gguf.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "formats/gguf_layout.h"
#include "formats/printable.h"
#include "quant/decode.h"

namespace patina {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

// The smallest encodings there are: they bound the counts of a header by the bytes that are left.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Reads from the front of a file; every read is checked against the file's end.
class Cursor {
 public:
  explicit Cursor(const MappedFile& map) : path_(map.path().string()), bytes_(map.bytes()) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Error::Kind::kModel, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  // What is being read, for messages.
  void enter(std::string what) { what_ = std::move(what); }
  const std::string& what() const { return what_; }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  const std::byte* take(uint64_t count) {
    if (count > remaining()) {
      refuse("{} needs {} bytes at offset {}, but the file ends at {}; download it again", what_, count, position_,
             bytes_.size());
    }
    const std::byte* start = bytes_.data() + position_;
    position_ += count;
    return start;
  }

  template <typename T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }

  std::string_view read_string() {
    const auto length = read<uint64_t>();
    return {reinterpret_cast<const char*>(take(length)), length};
  }

  std::string read_name(std::string_view kind) {
    const std::string_view name = read_string();
    if (name.empty() || name.size() > kGgufMaxNameBytes) {
      refuse("a {} of {} bytes at offset {}, expected 1 to {}; the file is damaged", kind, name.size(), position_,
             kGgufMaxNameBytes);
    }
    return std::string(name);
  }

  // A count of things that take at least min_bytes each.
  uint64_t read_count(uint64_t min_bytes) {
    const auto count = read<uint64_t>();
    if (count > remaining() / min_bytes) {
      refuse("{} counts {} items, more than the remaining {} bytes can hold; the file is damaged", what_, count,
             remaining());
    }
    return count;
  }

  bool read_bool() {
    const auto value = read<uint8_t>();
    if (value > 1) refuse("{} is a boolean of value {}, expected 0 or 1; the file is damaged", what_, value);
    return value == 1;
  }

 private:
  std::string path_, what_ = "the header";
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// Stored is the type in the file, Wide the alternative of GgufScalar that carries it.
template <typename Wide, typename Stored>
GgufArray read_array_of(Cursor* in) {
  constexpr bool kIsString = std::is_same_v<Stored, std::string_view>;
  const uint64_t count = in->read_count(kIsString ? sizeof(uint64_t) : sizeof(Stored));
  std::vector<Wide> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    if constexpr (kIsString) {
      values.push_back(in->read_string());
    } else if constexpr (std::is_same_v<Stored, bool>) {
      values.push_back(in->read_bool());
    } else {
      values.push_back(static_cast<Wide>(in->read<Stored>()));
    }
  }
  return {std::move(values)};
}

GgufArray read_array(Cursor* in) {
  const auto type = in->read<uint32_t>();
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return read_array_of<uint64_t, uint8_t>(in);
    case GgufType::kU16:
      return read_array_of<uint64_t, uint16_t>(in);
    case GgufType::kU32:
      return read_array_of<uint64_t, uint32_t>(in);
    case GgufType::kU64:
      return read_array_of<uint64_t, uint64_t>(in);
    case GgufType::kI8:
      return read_array_of<int64_t, int8_t>(in);
    case GgufType::kI16:
      return read_array_of<int64_t, int16_t>(in);
    case GgufType::kI32:
      return read_array_of<int64_t, int32_t>(in);
    case GgufType::kI64:
      return read_array_of<int64_t, int64_t>(in);
    case GgufType::kF32:
      return read_array_of<double, float>(in);
    case GgufType::kF64:
      return read_array_of<double, double>(in);
    case GgufType::kBool:
      return read_array_of<bool, bool>(in);
    case GgufType::kString:
      return read_array_of<std::string_view, std::string_view>(in);
    case GgufType::kArray:
      in->refuse("{} is an array of arrays, which is not supported", in->what());
  }
  in->refuse("{} is an array of unknown value type {}; the file is damaged or too new", in->what(), type);
}

GgufValue read_value(Cursor* in) {
  const auto type = in->read<uint32_t>();
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return GgufScalar(uint64_t{in->read<uint8_t>()});
    case GgufType::kU16:
      return GgufScalar(uint64_t{in->read<uint16_t>()});
    case GgufType::kU32:
      return GgufScalar(uint64_t{in->read<uint32_t>()});
    case GgufType::kU64:
      return GgufScalar(in->read<uint64_t>());
    case GgufType::kI8:
      return GgufScalar(int64_t{in->read<int8_t>()});
    case GgufType::kI16:
      return GgufScalar(int64_t{in->read<int16_t>()});
    case GgufType::kI32:
      return GgufScalar(int64_t{in->read<int32_t>()});
    case GgufType::kI64:
      return GgufScalar(in->read<int64_t>());
    case GgufType::kF32:
      return GgufScalar(double{in->read<float>()});
    case GgufType::kF64:
      return GgufScalar(in->read<double>());
    case GgufType::kBool:
      return GgufScalar(in->read_bool());
    case GgufType::kString:
      return GgufScalar(in->read_string());
    case GgufType::kArray:
      return read_array(in);
  }
  in->refuse("{} has unknown value type {}; the file is damaged or too new", in->what(), type);
}

uint32_t read_version(Cursor* in) {
  const std::string_view magic{reinterpret_cast<const char*>(in->take(kGgufMagic.size())), kGgufMagic.size()};
  if (magic != kGgufMagic) in->refuse("begins with {}, expected \"GGUF\"; give a GGUF model file", printable(magic));
  const auto version = in->read<uint32_t>();
  if (version != 0 && (version & 0xffff) == 0) {
    in->refuse("is a big-endian GGUF file, which is not supported; get the little-endian file");
  }
  if (version != 2 && version != 3) {
    in->refuse("is GGUF version {}, expected 2 or 3; convert the model again with current tools", version);
  }
  return version;
}

std::string decodable_names() {
  std::string names;
  for (const DTypeInfo& row : all_dtypes()) {
    if (is_decodable(row.dtype)) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return names;
}

DType read_dtype(Cursor* in) {
  const auto type = in->read<uint32_t>();
  if (const auto dtype = dtype_from_gguf(type)) return *dtype;
  const std::string_view known = gguf_type_name(type);
  in->refuse("{} is stored as {}, which is not supported; supported: {}", in->what(),
             known.empty() ? fmt::format("unknown type {}", type) : std::string(known), decodable_names());
}

Shape read_shape(Cursor* in) {
  const auto rank = in->read<uint32_t>();
  if (rank == 0 || rank > kMaxRank) in->refuse("{} has {} dimensions, expected 1 to {}", in->what(), rank, kMaxRank);
  std::array<int64_t, kMaxRank> dims;
  int64_t elements = 1;
  for (int axis = static_cast<int>(rank) - 1; axis >= 0; --axis) {  // the file has the innermost first
    const auto dim = in->read<uint64_t>();
    if (dim == 0) in->refuse("{} has a dimension of 0; the file is damaged", in->what());
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(dim), &elements)) {
      in->refuse("{} has more elements than 64 bits can count; the file is damaged", in->what());
    }
    dims[static_cast<size_t>(axis)] = static_cast<int64_t>(dim);
  }
  return Shape(std::span(dims).first(rank));
}

// offset_bytes is still relative to the data section, data unset.
GgufTensor read_tensor_entry(Cursor* in, uint64_t alignment) {
  GgufTensor tensor{};
  tensor.name = in->read_name("tensor name");
  in->enter("tensor " + printable(tensor.name));
  tensor.shape = read_shape(in);
  tensor.dtype = read_dtype(in);
  const DTypeInfo& row = info(tensor.dtype);
  const int64_t columns = tensor.shape[tensor.shape.rank() - 1];
  if (columns % row.block_values != 0) {
    in->refuse("{} has rows of {} values, expected a multiple of {}, the block of {}; the file is damaged", in->what(),
               columns, row.block_values, row.name);
  }
  if (__builtin_mul_overflow(tensor.shape.elements() / row.block_values, int64_t{row.block_bytes}, &tensor.bytes)) {
    in->refuse("{} has more bytes than 64 bits can count; the file is damaged", in->what());
  }
  const auto offset = in->read<uint64_t>();
  if (offset % alignment != 0 || offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    in->refuse("{} lies at offset {} of the data, expected a multiple of {}; the file is damaged", in->what(), offset,
               alignment);
  }
  tensor.offset_bytes = static_cast<int64_t>(offset);
  return tensor;
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile file;
  file.map_ = MappedFile(path);
  Cursor in(file.map_);
  file.version_ = read_version(&in);
  in.enter("the list of tensors");
  const uint64_t tensor_count = in.read_count(kMinTensorBytes);
  in.enter("the metadata");
  const uint64_t entry_count = in.read_count(kMinEntryBytes);

  for (uint64_t i = 0; i < entry_count; ++i) {
    in.enter(fmt::format("metadata key {} of {}", i + 1, entry_count));
    std::string key = in.read_name("metadata key");
    in.enter("metadata key " + printable(key));
    if (file.has(key)) in.refuse("{} appears twice; the file is damaged", in.what());
    const uint64_t begin = in.position();
    GgufValue value = read_value(&in);
    const auto* encoded = reinterpret_cast<const char*>(file.map_.bytes().data()) + begin;
    file.entries_.push_back({key, {encoded, in.position() - begin}});
    file.metadata_.emplace(std::move(key), std::move(value));
  }
  if (const int64_t parts = file.int_or("split.count", 1); parts > 1) {
    in.refuse(
        "is one of the {} files of a split model (split.count), which is not supported; merge them with "
        "llama-gguf-split --merge",
        parts);
  }
  const int64_t alignment = file.int_or("general.alignment", kGgufDefaultAlignment);
  if (alignment < 8 || !std::has_single_bit(static_cast<uint64_t>(alignment)) || alignment > (1 << 30)) {
    in.refuse("general.alignment is {}, expected a power of two from 8 to 2^30; the file is damaged", alignment);
  }
  file.alignment_ = static_cast<uint64_t>(alignment);

  file.tensors_.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    in.enter(fmt::format("tensor {} of {}", i + 1, tensor_count));
    GgufTensor tensor = read_tensor_entry(&in, file.alignment_);
    if (!file.tensor_index_.emplace(tensor.name, i).second) {
      in.refuse("{} appears twice; the file is damaged", in.what());
    }
    file.tensors_.push_back(std::move(tensor));
  }

  const uint64_t data_begin = gguf_align(in.position(), file.alignment_);
  const uint64_t file_bytes = file.map_.bytes().size();
  for (GgufTensor& tensor : file.tensors_) {
    const uint64_t begin = data_begin + static_cast<uint64_t>(tensor.offset_bytes);  // both are below 2^63
    if (begin > file_bytes || static_cast<uint64_t>(tensor.bytes) > file_bytes - begin) {
      in.refuse("tensor {} needs {} bytes at offset {}, but the file ends at {}; download it again",
                printable(tensor.name), tensor.bytes, begin, file_bytes);
    }
    tensor.offset_bytes = static_cast<int64_t>(begin);
    tensor.data = file.map_.bytes().data() + begin;
  }
  return file;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace patina
