#include "formats/tensorboard.h"

#include <bit>

#include "base/crc32c.h"

namespace patina {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

template <typename Number>
std::string bytes_of(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(uint32_t field, Wire wire) { return varint(field << 3 | static_cast<uint32_t>(wire)); }
std::string integer(uint32_t field, int64_t value) {
  return key(field, Wire::kVarint) + varint(static_cast<uint64_t>(value));
}
std::string message(uint32_t field, std::string_view content) {
  return (key(field, Wire::kBytes) + varint(content.size())).append(content);
}

std::string masked_sum(std::string_view bytes) {
  const uint32_t sum = crc32c(bytes);
  return bytes_of(std::rotr(sum, 15) + 0xa282ead8u);
}

std::string record(std::string_view content) {
  const std::string length = bytes_of(uint64_t{content.size()});
  return (length + masked_sum(length)).append(content) + masked_sum(content);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_time(double wall_seconds) { return key(1, Wire::kFixed64) + bytes_of(wall_seconds); }
std::string summary_event(double wall_seconds, int64_t step, std::string_view values) {
  return record(event_time(wall_seconds) + integer(2, step) + message(5, values));
}

}  // namespace

std::string tensorboard_begin(double wall_seconds) {
  return record(event_time(wall_seconds) + message(3, "brain.Event:2"));
}

// Summary: value = 1; Value: tag = 1, simple_value = 2.
std::string tensorboard_scalars(double wall_seconds, int64_t step, std::span<const TensorBoardScalar> scalars) {
  std::string values;
  for (const TensorBoardScalar& scalar : scalars)
    values += message(1, message(1, scalar.tag) + key(2, Wire::kFixed32) + bytes_of(static_cast<float>(scalar.value)));
  return summary_event(wall_seconds, step, values);
}

// Value: tensor = 8, metadata = 9. SummaryMetadata: plugin_data = 1 (plugin_name = 1), data_class = 4 (2: tensor).
// TensorProto: dtype = 1 (7: string), tensor_shape = 2 (dim = 2, of it size = 1), string_val = 8.
std::string tensorboard_text(double wall_seconds, int64_t step, std::string_view tag, std::string_view markdown) {
  const std::string metadata = message(1, message(1, "text")) + integer(4, 2);
  const std::string tensor = integer(1, 7) + message(2, message(2, integer(1, 1))) + message(8, markdown);
  return summary_event(wall_seconds, step, message(1, message(1, tag) + message(8, tensor) + message(9, metadata)));
}

}  // namespace patina
