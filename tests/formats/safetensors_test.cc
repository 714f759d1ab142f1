#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/damage.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

SafetensorsWriter small_writer() {
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  writer.set_metadata("quote", "a \"line\"\n");
  const std::vector<float> floats{1.0f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<uint16_t> halves{0x3c00, 0x4000, 0x4200};
  const std::vector<int32_t> integers{-1};
  writer.add("b.weight", DType::kF32, {2, 3}, std::as_bytes(std::span(floats)));
  writer.add("a.half", DType::kF16, {3}, std::as_bytes(std::span(halves)));
  writer.add("c.brain", DType::kBF16, {3, 1, 1, 1}, std::as_bytes(std::span(halves)));
  writer.add("d.scalar", DType::kI32, {}, std::as_bytes(std::span(integers)));
  writer.add("e.empty", DType::kF32, {0, 4}, {});
  return writer;
}

std::string raw_file(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header;
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

std::string refusal_of_bytes(const std::string& bytes) {
  const TempDir dir;
  const auto path = dir.write("x.safetensors", bytes);
  try {
    SafetensorsFile::open(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kModel);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}
std::string refusal(std::string_view header, size_t data_bytes = 0) {
  return refusal_of_bytes(raw_file(header, data_bytes));
}
#define EXPECT_REFUSED(part, ...) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, refusal(__VA_ARGS__))

TEST(Safetensors, ReadsWhatItWrites) {
  const TempDir dir;
  const auto path = dir.path() / "small.safetensors";
  small_writer().write(path);
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"quote", "a \"line\"\n"}}));
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.tensors()[0].name, "a.half");
  const SafetensorsTensor* weight = file.find("b.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, DType::kF32);
  EXPECT_EQ(weight->shape, (Shape{2, 3}));
  EXPECT_EQ(weight->bytes, 24);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(weight->data) % 4, 0u);
  float last;
  std::memcpy(&last, weight->data + 20, sizeof last);
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(file.find("c.brain")->shape, (Shape{3, 1, 1, 1}));
  EXPECT_EQ(file.find("d.scalar")->shape.rank(), 0);
  EXPECT_EQ(file.find("e.empty")->bytes, 0);
  EXPECT_EQ(file.find("b"), nullptr);
  EXPECT_EQ(file.find("z"), nullptr);
}

TEST(Safetensors, RefusesByName) {
  EXPECT_EQ(refusal("{}"), "accepted");
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "too few", refusal_of_bytes("short"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "claims", refusal_of_bytes(std::string(64, '\xff')));
  EXPECT_REFUSED("not valid JSON", "{\"a\":");
  EXPECT_REFUSED("no JSON object", "[1]");
  EXPECT_REFUSED("nested deeper", "{\"a\":[[[[1]]]]}");
  EXPECT_REFUSED("nested deeper", std::string(100000, '['));
  EXPECT_REFUSED("\"a\" twice", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                                    "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                 4);
  EXPECT_REFUSED("\"shape\" twice", R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("no string", R"({"__metadata__":{"a":1}})");
  EXPECT_REFUSED("no JSON object", R"({"__metadata__":[]})");
  EXPECT_REFUSED("tensor \"a\" has no dtype", R"({"a":3})");
  EXPECT_REFUSED("has no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("dtype \"F8_E4M3\", which is not supported; supported: F32, F16, BF16",
                 R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_REFUSED("5 dimensions", R"({"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("natural numbers", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("natural numbers", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("natural numbers", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4);
  EXPECT_REFUSED("64 bits", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4);
  EXPECT_REFUSED("ascending", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4);
  EXPECT_REFUSED("ascending", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8);
  EXPECT_REFUSED("ascending", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4);
  EXPECT_REFUSED("8 bytes, expected 4", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8);
  EXPECT_REFUSED("hole", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8);
  EXPECT_REFUSED("its tensors fill 4", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8);
  EXPECT_REFUSED("overlapping", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                                    "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                 8);
}

TEST(Safetensors, SurvivesDamage) {
  const TempDir dir;
  const auto path = dir.path() / "damaged.safetensors";
  small_writer().write(path);
  const std::string bytes = read_file(path);
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  size_t refused = 0, accepted = 0;
  for_each_damage(bytes, header_bytes + sizeof header_bytes, [&](const std::string& damaged) {
    dir.write("damaged.safetensors", damaged);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      ++accepted;
      const MappedFile map(path);  // only its size is used
      int64_t total = 0;
      for (const SafetensorsTensor& tensor : file.tensors()) {
        ASSERT_GE(tensor.bytes, 0);
        ASSERT_EQ(tensor.bytes, bytes_of(tensor.dtype, tensor.shape.elements()));
        std::vector<std::byte> copy(tensor.data, tensor.data + tensor.bytes);
        total += tensor.bytes;
      }
      ASSERT_LE(total, std::ssize(map.bytes()));
    } catch (const Error&) {
      ++refused;
    }
  });
  EXPECT_GT(refused, 5000u);
  EXPECT_GT(accepted, 100u);
}

TEST(Safetensors, WriterRefusesMistakes) {
  SafetensorsWriter writer = small_writer();
  const std::vector<float> one{1.0f};
  EXPECT_THROW(writer.add("b.weight", DType::kF32, {1}, std::as_bytes(std::span(one))), InternalError);
  EXPECT_THROW(writer.add("short", DType::kF32, {2}, std::as_bytes(std::span(one))), InternalError);
  EXPECT_THROW(writer.add("block", DType::kQ8_0, {32}, std::vector<std::byte>(34)), InternalError);
  EXPECT_THROW(writer.add("__metadata__", DType::kF32, {1}, std::as_bytes(std::span(one))), InternalError);
  writer.set_metadata("text", "\xff");
  const TempDir dir;
  EXPECT_THROW(writer.write(dir.path() / "x.safetensors"), Error);
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "x.safetensors"));
}

}  // namespace
}  // namespace patina
