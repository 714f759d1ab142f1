#include "formats/rewrite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "formats/printable.h"
#include "quant/decode.h"

namespace patina {
namespace {

constexpr const char* kFileType = "general.file_type";

// Numbers of general.file_type, and whether it needs general.quantization_version. Source: docs/gguf.md of ggml.
struct FileType {
  DType dtype;
  uint32_t number;
  bool quantised;
};
constexpr FileType kFileTypes[] = {{DType::kF32, 0, false}, {DType::kF16, 1, false}, {DType::kBF16, 32, false},
                                   {DType::kQ4_0, 2, true}, {DType::kQ4_1, 3, true}, {DType::kQ8_0, 7, true}};
constexpr uint32_t kQuantizationVersion = 2;

// The type of most values.
DType main_type(const GgufFile& file, std::span<const DType> types) {
  std::map<DType, int64_t> values;
  for (size_t i = 0; i < types.size(); ++i) values[types[i]] += file.tensors()[i].shape.elements();
  PATINA_CHECK(!values.empty(), "{} has no tensors", file.path().string());
  return std::ranges::max_element(values, {}, [](const auto& item) { return item.second; })->first;
}

std::vector<DType> types_of(const GgufFile& file) {
  std::vector<DType> types;
  for (const GgufTensor& tensor : file.tensors()) types.push_back(tensor.dtype);
  return types;
}

int64_t columns_of(const GgufTensor& tensor) { return tensor.shape[tensor.shape.rank() - 1]; }

}  // namespace

DType converted_type(const GgufTensor& tensor, DType wanted) {
  if (!is_decodable(tensor.dtype)) return tensor.dtype;
  if (tensor.shape.rank() < 2) return DType::kF32;
  return columns_of(tensor) % info(wanted).block_values == 0 ? wanted : DType::kF16;
}

GgufWriter rewriting_writer(const GgufFile& file, std::span<const DType> types) {
  PATINA_CHECK(types.size() == file.tensors().size(), "{} types for {} tensors", types.size(), file.tensors().size());
  GgufWriter writer;
  writer.copy_metadata(file);
  const DType now = main_type(file, types);
  if (now == main_type(file, types_of(file))) return writer;
  const auto* row = std::ranges::find(kFileTypes, now, &FileType::dtype);
  if (row == std::end(kFileTypes)) return writer;
  writer.set(kFileType, row->number);
  if (row->quantised) writer.set("general.quantization_version", kQuantizationVersion);
  return writer;
}

RowEncoder::RowEncoder(const GgufFile& file, const GgufTensor& tensor, DType dtype)
    : path_(file.path()), tensor_(tensor), dtype_(dtype), row_bytes_(bytes_of(dtype, columns_of(tensor))) {
  PATINA_CHECK(encode_row(dtype) != nullptr, "type {}", name(dtype));
}

void RowEncoder::encode(int64_t row, std::span<float> values, std::byte* out) const {
  const auto check_finite = [&](std::string_view what_to_do) {
    for (const float value : values)
      if (!std::isfinite(value))
        fail(Error::Kind::kModel, "{}: tensor {} holds {} in stored row {}; {}", path_.string(),
             printable(tensor_.name), value, row, what_to_do);
  };
  check_finite("expected finite numbers: the file, or what changes it, is damaged");
  const auto count = static_cast<int64_t>(values.size());
  encode_row(dtype_)(values.data(), count, out);
  decode_row(dtype_)(out, 0, count, values.data());
  check_finite(fmt::format("its numbers are too large for {}: take f32 or bf16", name(dtype_)));
}

void stream_rows(int64_t rows, int64_t row_bytes, ThreadPool& pool, GgufSink sink,
                 FunctionRef<void(int64_t row, int worker, std::byte* out)> fill) {
  constexpr int64_t kRowsPerThread = 32;
  const int64_t most = std::min(rows, kRowsPerThread * pool.size());
  std::vector<std::byte> chunk(static_cast<size_t>(most * row_bytes));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    pool.run(count, [&](int64_t i, int worker) {
      fill(first + i, worker, chunk.data() + static_cast<size_t>(i * row_bytes));
    });
    sink(std::span(chunk).first(static_cast<size_t>(count * row_bytes)));
  }
}

void convert_model(const GgufFile& file, DType wanted, const std::filesystem::path& path, ThreadPool& pool) {
  std::vector<DType> types;
  for (const GgufTensor& tensor : file.tensors()) types.push_back(converted_type(tensor, wanted));
  GgufWriter writer = rewriting_writer(file, types);
  std::vector<std::vector<float>> values(static_cast<size_t>(pool.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    writer.add_tensor(
        tensor.name, types[i], tensor.shape, [&file, &tensor, &values, &pool, type = types[i]](GgufSink sink) {
          if (type == tensor.dtype) return sink({tensor.data, static_cast<size_t>(tensor.bytes)});
          const int64_t columns = columns_of(tensor), stored_bytes = bytes_of(tensor.dtype, columns);
          const RowEncoder encoder(file, tensor, type);
          for (std::vector<float>& row : values) row.resize(static_cast<size_t>(columns));
          stream_rows(tensor.shape.elements() / columns, encoder.row_bytes(), pool, sink,
                      [&](int64_t row, int worker, std::byte* out) {
                        std::vector<float>& decoded = values[static_cast<size_t>(worker)];
                        decode_row(tensor.dtype)(tensor.data + row * stored_bytes, 0, columns, decoded.data());
                        encoder.encode(row, decoded, out);
                      });
        });
  }
  writer.write(path);
}

}  // namespace patina
