#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "support/damage.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

template <typename T>
std::span<const std::byte> bytes_of_vector(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

GgufWriter small_writer() {
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("llama.block_count", uint32_t{2});
  writer.set("llama.epsilon", 1e-5f);
  writer.set("tokenizer.add_bos", true);
  writer.set("tokenizer.tokens", std::vector<std::string>{"a", "", "\xc4\xa0the"});
  writer.set("tokenizer.scores", std::vector<float>{0.5f, -1.0f});
  writer.set("tokenizer.types", std::vector<int32_t>{1, -3});
  writer.add_tensor("norm", DType::kF32, {5}, bytes_of_vector(ramp(5)));
  writer.add_tensor("weight", DType::kQ8_0, {2, 32}, bytes_of_vector(std::vector<uint8_t>(68, 7)));
  writer.add_tensor("kernel", DType::kF16, {4, 3, 2, 1}, bytes_of_vector(std::vector<uint16_t>(24, 0x3c00)));
  return writer;
}

std::string small_file() {
  const TempDir dir;
  small_writer().write(dir.path() / "small.gguf");
  return read_file(dir.path() / "small.gguf");
}

// A file put together by hand, for what the writer never writes.
struct RawGguf {
  std::string bytes;

  template <typename T>
  RawGguf& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  RawGguf& text(std::string_view value) {
    put(uint64_t{value.size()});
    bytes.append(value);
    return *this;
  }
  static RawGguf header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    RawGguf raw{"GGUF"};
    return raw.put(version).put(tensors).put(entries);
  }
  RawGguf& tensor(std::string_view name, std::initializer_list<uint64_t> ne, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) put(n);
    return put(type).put(offset);
  }
  RawGguf& data(size_t count) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + count);
    return *this;
  }
};
constexpr uint32_t kU32 = 4, kI32 = 5, kBool = 7, kString = 8, kArray = 9, kU64 = 10, kF64 = 12;

std::string refusal(const std::string& bytes) {
  const TempDir dir;
  const std::filesystem::path path = dir.write("x.gguf", bytes);
  try {
    GgufFile::open(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kModel);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}
#define EXPECT_REFUSED(raw, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, refusal((raw).bytes))

TEST(Gguf, ReadsWhatItWrites) {
  const TempDir dir;
  const auto path = dir.path() / "small.gguf";
  small_writer().write(path);
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.require_string("general.architecture"), "llama");
  EXPECT_EQ(file.require_int("llama.block_count"), 2);
  EXPECT_EQ(file.require_float("llama.epsilon"), static_cast<double>(1e-5f));
  EXPECT_TRUE(file.bool_or("tokenizer.add_bos", false));
  EXPECT_EQ(file.strings_or_empty("tokenizer.tokens"), (std::vector<std::string_view>{"a", "", "\xc4\xa0the"}));
  EXPECT_EQ(file.floats_or_empty("tokenizer.scores"), (std::vector<double>{0.5, -1.0}));
  EXPECT_EQ(file.ints_or_empty("tokenizer.types"), (std::vector<int64_t>{1, -3}));
  EXPECT_EQ(std::get<GgufArray>(file.metadata().at("tokenizer.tokens")).size(), 3u);

  ASSERT_EQ(file.tensors().size(), 3u);
  const GgufTensor* norm = file.find_tensor("norm");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->bytes, 20);
  EXPECT_EQ(std::memcmp(norm->data, ramp(5).data(), 20), 0);
  const GgufTensor* weight = file.find_tensor("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, DType::kQ8_0);
  EXPECT_EQ(weight->shape, (Shape{2, 32}));
  EXPECT_EQ(weight->offset_bytes % 32, 0);
  EXPECT_EQ(weight->data[67], std::byte{7});
  EXPECT_EQ(file.find_tensor("kernel")->shape, (Shape{4, 3, 2, 1}));
  EXPECT_EQ(file.find_tensor("nor"), nullptr);
}

TEST(Gguf, TypedAccess) {
  const TempDir dir;
  const auto path = dir.path() / "small.gguf";
  small_writer().write(path);
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.int_or("absent", 9), 9);
  EXPECT_EQ(file.float_or("absent", 0.25), 0.25);
  EXPECT_EQ(file.string_or("absent", "x"), "x");
  EXPECT_TRUE(file.bool_or("absent", true));
  EXPECT_TRUE(file.strings_or_empty("absent").empty());
  EXPECT_TRUE(file.ints_or_empty("absent").empty());
  EXPECT_TRUE(file.floats_or_empty("absent").empty());
  EXPECT_THROW(file.require_int("absent"), Error);
  EXPECT_THROW(file.require_float("absent"), Error);
  EXPECT_THROW(file.require_string("absent"), Error);
  EXPECT_THROW(file.int_or("llama.epsilon", 1), Error);
  EXPECT_THROW(file.int_or("tokenizer.types", 1), Error);
  EXPECT_THROW(file.float_or("llama.block_count", 1), Error);
  EXPECT_THROW(file.bool_or("llama.block_count", true), Error);
  EXPECT_THROW(file.string_or("tokenizer.tokens", ""), Error);
  EXPECT_THROW(file.strings_or_empty("tokenizer.types"), Error);
  EXPECT_THROW(file.ints_or_empty("general.architecture"), Error);
  EXPECT_THROW(file.floats_or_empty("tokenizer.types"), Error);
}

TEST(Gguf, IntegersOfEveryWidth) {
  RawGguf raw = RawGguf::header(0, 12, 2);
  const auto entry = [&](std::string_view key, uint32_t type, auto value) { raw.text(key).put(type).put(value); };
  entry("u8", 0, uint8_t{255});
  entry("i8", 1, int8_t{-128});
  entry("u16", 2, uint16_t{65535});
  entry("i16", 3, int16_t{-32768});
  entry("u32", kU32, uint32_t{4294967295});
  entry("i32", kI32, int32_t{-7});
  entry("u64", kU64, uint64_t{1} << 62);
  entry("i64", 11, int64_t{-1} << 62);
  entry("f64", kF64, 0.1);
  entry("huge", kU64, uint64_t{1} << 63);
  raw.text("list").put(kArray).put(kU64).put(uint64_t{2}).put(uint64_t{3}).put(uint64_t{1} << 40);
  raw.text("flags").put(kArray).put(kBool).put(uint64_t{2}).put(uint8_t{0}).put(uint8_t{1});
  const TempDir dir;
  const GgufFile file = GgufFile::open(dir.write("x.gguf", raw.bytes));
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.require_int("u8"), 255);
  EXPECT_EQ(file.require_int("i8"), -128);
  EXPECT_EQ(file.require_int("u16"), 65535);
  EXPECT_EQ(file.require_int("i16"), -32768);
  EXPECT_EQ(file.require_int("u32"), 4294967295);
  EXPECT_EQ(file.require_int("i32"), -7);
  EXPECT_EQ(file.require_int("u64"), int64_t{1} << 62);
  EXPECT_EQ(file.require_int("i64"), int64_t{-1} << 62);
  EXPECT_EQ(file.require_float("f64"), 0.1);
  EXPECT_THROW(file.require_int("huge"), Error);
  EXPECT_EQ(file.ints_or_empty("list"), (std::vector<int64_t>{3, int64_t{1} << 40}));
  const auto& flags = std::get<std::vector<bool>>(std::get<GgufArray>(file.metadata().at("flags")).values);
  EXPECT_EQ(flags, (std::vector<bool>{false, true}));
}

TEST(Gguf, RefusesByName) {
  EXPECT_REFUSED((RawGguf{"PK\x03\x04 some archive, not a model"}), "expected \"GGUF\"");
  EXPECT_REFUSED((RawGguf{""}), "the file ends at 0");
  EXPECT_REFUSED(RawGguf::header(0, 0, 1), "version 1");
  EXPECT_REFUSED(RawGguf::header(0, 0, 4), "version 4");
  EXPECT_REFUSED(RawGguf::header(0, 0, 0x03000000), "big-endian");
  EXPECT_REFUSED(RawGguf::header(uint64_t{1} << 60, 0), "the list of tensors counts 1152921504606846976");
  EXPECT_REFUSED(RawGguf::header(0, ~uint64_t{0}), "the metadata counts 18446744073709551615");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("split.count").put(kU32).put(uint32_t{3}).data(9), "one of the 3 files");
  EXPECT_EQ(refusal(RawGguf::header(0, 1).text("split.count").put(kU32).put(uint32_t{1}).data(9).bytes), "accepted");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("general.alignment").put(kU32).put(uint32_t{24}).data(9), "is 24");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("general.alignment").put(kU32).put(uint32_t{0}).data(9), "is 0");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("nested").put(kArray).put(kArray).put(uint64_t{1}).data(99), "\"nested\"");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("odd").put(uint32_t{13}).data(9), "unknown value type 13");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("odd").put(kArray).put(uint32_t{77}).data(9), "unknown value type 77");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("flag").put(kBool).put(uint8_t{2}).data(9), "boolean of value 2");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("").put(kBool).put(uint8_t{1}).data(9), "metadata key of 0 bytes");
  EXPECT_REFUSED(RawGguf::header(0, 1).text("list").put(kArray).put(kString).put(uint64_t{1} << 61).data(9), "counts");
  RawGguf twice = RawGguf::header(0, 2);
  for (int i = 0; i < 2; ++i) twice.text("key\n").put(kU32).put(uint32_t{1});
  EXPECT_REFUSED(twice, "\"key\\x0a\" appears twice");
}

TEST(Gguf, RefusesTensorsByName) {
  const auto one = [](std::initializer_list<uint64_t> ne, uint32_t type, uint64_t offset, size_t data = 4096) {
    return RawGguf::header(1, 0).tensor("blk.0.w", ne, type, offset).data(data);
  };
  EXPECT_EQ(refusal(one({64, 2}, 2, 32, 32 + 72).bytes), "accepted");
  EXPECT_REFUSED(one({64, 2}, 2, 32, 32 + 71), "\"blk.0.w\" needs 72 bytes");
  EXPECT_REFUSED(one({64, 2}, 2, 16), "multiple of 32");
  EXPECT_REFUSED(one({64, 2}, 2, ~uint64_t{0} - 31), "lies at offset");
  EXPECT_REFUSED(one({64, 2}, 2, uint64_t{1} << 62), "the file ends");
  EXPECT_REFUSED(one({48, 2}, 2, 0), "rows of 48 values, expected a multiple of 32, the block of Q4_0");
  EXPECT_REFUSED(one({128, 2}, 12, 0), "expected a multiple of 256, the block of Q4_K");
  EXPECT_REFUSED(one({256, 2}, 16, 0), "\"blk.0.w\" is stored as IQ2_XXS, which is not supported; supported: F32");
  EXPECT_REFUSED(one({256, 2}, 999, 0), "unknown type 999");
  EXPECT_REFUSED(one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  EXPECT_REFUSED(one({}, 0, 0), "0 dimensions");
  EXPECT_REFUSED(one({4, 0}, 0, 0), "dimension of 0");
  EXPECT_REFUSED(one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), "more elements");
  EXPECT_REFUSED(one({uint64_t{1} << 63}, 0, 0), "more elements");
  EXPECT_REFUSED(one({uint64_t{1} << 62}, 0, 0), "more bytes");
  EXPECT_REFUSED(RawGguf::header(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(99), "\"a\" appears twice");
}

TEST(Gguf, SurvivesDamage) {
  const std::string bytes = small_file();
  const TempDir dir;
  const auto path = dir.path() / "damaged.gguf";
  size_t header_bytes;
  {
    const GgufFile file = GgufFile::open(dir.write("damaged.gguf", bytes));
    header_bytes = static_cast<size_t>(file.tensors()[0].offset_bytes);
  }
  size_t refused = 0, accepted = 0;
  for_each_damage(bytes, header_bytes, [&](const std::string& damaged) {
    dir.write("damaged.gguf", damaged);
    try {
      const GgufFile file = GgufFile::open(path);
      ++accepted;
      for (const GgufTensor& tensor : file.tensors()) {
        ASSERT_GE(tensor.offset_bytes, 0);
        ASSERT_GE(tensor.bytes, 0);
        ASSERT_LE(tensor.offset_bytes, file.file_bytes());
        ASSERT_LE(tensor.bytes, file.file_bytes() - tensor.offset_bytes);
        ASSERT_EQ(tensor.bytes, bytes_of(tensor.dtype, tensor.shape.elements()));
        std::vector<std::byte> copy(tensor.data, tensor.data + tensor.bytes);
      }
      for (const std::string_view token : file.strings_or_empty("tokenizer.tokens")) std::string copy(token);
    } catch (const Error&) {
      ++refused;
    }
  });
  EXPECT_GT(refused, 5000u);
  EXPECT_GT(accepted, 100u);  // a changed letter of a name is no damage that can be seen
}

TEST(Gguf, WriterRefusesMistakesOfItsCaller) {
  GgufWriter writer = small_writer();
  EXPECT_THROW(writer.set("llama.block_count", uint32_t{3}), InternalError);
  EXPECT_THROW(writer.add_tensor("norm", DType::kF32, {1}, bytes_of_vector(ramp(1))), InternalError);
  EXPECT_THROW(writer.add_tensor("short", DType::kF32, {2}, bytes_of_vector(ramp(1))), InternalError);
  EXPECT_THROW(writer.add_tensor("odd", DType::kQ8_0, {2, 16}, bytes_of_vector(std::vector<uint8_t>(34))),
               InternalError);
}

TEST(Gguf, RealModel) {
  const auto path = std::filesystem::path(PATINA_SOURCE_DIR) / "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.require_string("general.architecture"), "llama");
  EXPECT_EQ(file.require_int("llama.block_count"), 30);
  EXPECT_EQ(file.require_int("llama.embedding_length"), 576);
  EXPECT_EQ(file.strings_or_empty("tokenizer.ggml.tokens").size(), 49152u);
  EXPECT_EQ(file.tensors().size(), 272u);
  const GgufTensor* q = file.find_tensor("blk.29.attn_q.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->dtype, DType::kQ4_1);
  EXPECT_EQ(q->shape, (Shape{576, 576}));
}

}  // namespace
}  // namespace patina
