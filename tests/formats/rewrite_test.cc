#include "formats/rewrite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "quant/decode.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

namespace fs = std::filesystem;

std::vector<float> wave(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.7f);
  return values;
}

// Two matrices, one of them with rows that no block divides, a norm and integers.
fs::path write_model(const TempDir& directory, float first = 0.5f) {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("general.file_type", uint32_t{0});
  writer.set("tokenizer.tokens", std::vector<std::string>{"a", "b"});
  const auto add = [&](const char* name, const Shape& shape) {
    std::vector<float> values = wave(shape.elements());
    values[0] = first;
    writer.add_tensor(name, DType::kF32, shape, std::as_bytes(std::span(values)));
  };
  add("matrix", {100, 64});
  add("narrow", {3, 20});
  add("norm", {64});
  const std::vector<int32_t> integers = {1, 2, 3};
  writer.add_tensor("integers", DType::kI32, {3}, std::as_bytes(std::span(integers)));
  const fs::path path = directory.path() / "model.gguf";
  writer.write(path);
  return path;
}

std::vector<float> decoded(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  decode_row(tensor.dtype)(tensor.data, 0, tensor.shape.elements(), values.data());
  return values;
}

TEST(Convert, MatricesTakeTheTypeAndAllElseStays) {
  const TempDir directory;
  const GgufFile model = GgufFile::open(write_model(directory));
  for (const auto& [type, file_type, error] :
       {std::tuple{DType::kF16, 1, 5e-4f}, {DType::kQ8_0, 7, 5e-3f}, {DType::kQ4_1, 3, 0.07f}}) {
    SCOPED_TRACE(name(type));
    ThreadPool pool(2);
    const fs::path out = directory.path() / "out.gguf";
    convert_model(model, type, out, pool);
    const GgufFile written = GgufFile::open(out);
    EXPECT_EQ(written.require_int("general.file_type"), file_type);
    EXPECT_EQ(written.int_or("general.quantization_version", 0), type == DType::kF16 ? 0 : 2);
    EXPECT_EQ(written.entries()[0].key, "general.architecture");
    EXPECT_EQ(written.entries()[2].encoded, model.entries()[2].encoded);
    EXPECT_EQ(written.find_tensor("matrix")->dtype, type);
    EXPECT_EQ(written.find_tensor("narrow")->dtype, DType::kF16);
    for (const char* kept : {"norm", "integers"}) {
      const GgufTensor &before = *model.find_tensor(kept), &after = *written.find_tensor(kept);
      EXPECT_EQ(after.dtype, before.dtype);
      EXPECT_EQ(std::memcmp(after.data, before.data, static_cast<size_t>(before.bytes)), 0) << kept;
    }
    for (const char* changed : {"matrix", "narrow"}) {
      const std::vector<float> before = decoded(*model.find_tensor(changed)),
                               after = decoded(*written.find_tensor(changed));
      for (size_t i = 0; i < before.size(); ++i)
        ASSERT_TRUE(std::abs(after[i] - before[i]) <= error) << changed << " " << i;
    }
    // The same bytes by any number of threads.
    ThreadPool one(1);
    convert_model(model, type, directory.path() / "one.gguf", one);
    EXPECT_EQ(read_file(out), read_file(directory.path() / "one.gguf"));
  }
}

TEST(Convert, ThereAndBackIsTheSameFile) {
  const TempDir directory;
  const fs::path path = write_model(directory);
  ThreadPool pool(2);
  convert_model(GgufFile::open(path), DType::kF32, directory.path() / "same.gguf", pool);
  EXPECT_EQ(read_file(directory.path() / "same.gguf"), read_file(path));
}

TEST(Convert, RefusesNumbersThatTheTypeCannotHoldAndLeavesNoFile) {
  const TempDir directory;
  const auto refused = [&](float first, DType type, const std::string& part) {
    const GgufFile model = GgufFile::open(write_model(directory, first));
    ThreadPool pool(2);
    try {
      convert_model(model, type, directory.path() / "out.gguf", pool);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("\"matrix\""), std::string::npos) << error.what();
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 1);
  };
  refused(1e5f, DType::kF16, "too large for F16");
  refused(1e7f, DType::kQ4_0, "too large for Q4_0");
  refused(NAN, DType::kQ8_0, "nan");
}

// General alignment of 64: kept, and obeyed.
TEST(Rewriting, KeepsTheAlignment) {
  const TempDir directory;
  GgufWriter writer;
  writer.set("general.alignment", uint32_t{64});
  const std::vector<float> values = wave(32);
  // The writer itself only knows the default, which is no multiple of 64: with one tensor nothing shows.
  writer.add_tensor("a", DType::kF32, {1, 32}, std::as_bytes(std::span(values)));
  std::string bytes;
  writer.write(directory.path() / "a.gguf");
  bytes = read_file(directory.path() / "a.gguf");
  const size_t data = bytes.size() - 128;
  bytes.insert(data, (64 - data % 64) % 64, '\0');
  const GgufFile model = GgufFile::open(directory.write("b.gguf", bytes));
  ThreadPool pool(1);
  convert_model(model, DType::kF16, directory.path() / "out.gguf", pool);
  const GgufFile written = GgufFile::open(directory.path() / "out.gguf");
  EXPECT_EQ(written.alignment(), 64u);
  EXPECT_EQ(written.tensors()[0].offset_bytes % 64, 0);
  EXPECT_TRUE(std::abs(decoded(written.tensors()[0])[5] - values[5]) <= 5e-4f);
}

}  // namespace
}  // namespace patina
