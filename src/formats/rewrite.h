// Model files with some of their tensors in another type, written row by row: memory is a few rows, whatever the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/threads.h"
#include "formats/gguf.h"
#include "quant/encode.h"

namespace patina {

// The type that a tensor gets where the file is wanted in `wanted`: matrices take it, or F16 where a block does not
// divide their rows; tensors of one dimension are F32; integers stay as they are.
DType converted_type(const GgufTensor& tensor, DType wanted);

// A writer that has the file's metadata, for tensors of these types (one for each tensor of the file, in order).
// general.file_type, the type of most of the values, is set anew where that type is another than before.
GgufWriter rewriting_writer(const GgufFile& file, std::span<const DType> types);

// Encodes rows, and sees that no number is lost.
class RowEncoder {
 public:
  // `tensor` must outlive it. The type must be one that can be encoded.
  RowEncoder(const GgufFile& file, const GgufTensor& tensor, DType dtype);
  int64_t row_bytes() const { return row_bytes_; }
  // Writes the values of a stored row to `out`, and over `values` what they read as now. Error(kModel) naming the
  // tensor where one of them is not finite, or is not any more.
  void encode(int64_t row, std::span<float> values, std::byte* out) const;

 private:
  std::filesystem::path path_;
  const GgufTensor& tensor_;
  DType dtype_;
  int64_t row_bytes_;
};

// Gives `rows` rows to the sink, in order. fill() makes one of them; several are made at once, on the pool's threads.
void stream_rows(int64_t rows, int64_t row_bytes, ThreadPool& pool, GgufSink sink,
                 FunctionRef<void(int64_t row, int worker, std::byte* out)> fill);

// Writes the model in the type `wanted`, every tensor by converted_type().
void convert_model(const GgufFile& file, DType wanted, const std::filesystem::path& path, ThreadPool& pool);

}  // namespace patina
