// Typed access to the metadata of a GGUF file.
#include <limits>
#include <optional>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace patina {
namespace {

constexpr std::string_view kScalarKinds[] = {"an integer", "an integer", "a number with a fraction", "a boolean",
                                             "a string"};
constexpr std::string_view kArrayKinds[] = {"an array of integers", "an array of integers", "an array of numbers",
                                            "an array of booleans", "an array of strings"};

std::string_view kind_of(const GgufValue& value) {
  if (const auto* scalar = std::get_if<GgufScalar>(&value)) return kScalarKinds[scalar->index()];
  return kArrayKinds[std::get<GgufArray>(value).values.index()];
}

[[noreturn]] void refuse_kind(const GgufFile& file, std::string_view key, std::string_view expected,
                              const GgufValue& found) {
  fail(Error::Kind::kModel, "{}: metadata key {} is {}, expected {}; convert the model again with current tools",
       file.path().string(), printable(key), kind_of(found), expected);
}

[[noreturn]] void refuse_missing(const GgufFile& file, std::string_view key) {
  fail(Error::Kind::kModel, "{}: metadata key {} is missing; convert the model again with current tools",
       file.path().string(), printable(key));
}

int64_t to_int64(const GgufFile& file, std::string_view key, uint64_t value) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail(Error::Kind::kModel, "{}: metadata key {} is {}, expected less than 2^63; the file is damaged",
         file.path().string(), printable(key), value);
  }
  return static_cast<int64_t>(value);
}

const GgufValue* find(const GgufFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : &found->second;
}

// The scalar of exactly this kind, nullptr where the key is missing.
template <typename T>
const T* find_scalar(const GgufFile& file, std::string_view key, std::string_view expected) {
  const GgufValue* value = find(file, key);
  if (value == nullptr) return nullptr;
  const auto* scalar = std::get_if<GgufScalar>(value);
  const T* typed = scalar == nullptr ? nullptr : std::get_if<T>(scalar);
  if (typed == nullptr) refuse_kind(file, key, expected, *value);
  return typed;
}

std::optional<int64_t> find_int(const GgufFile& file, std::string_view key) {
  const GgufValue* value = find(file, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* scalar = std::get_if<GgufScalar>(value)) {
    if (const auto* natural = std::get_if<uint64_t>(scalar)) return to_int64(file, key, *natural);
    if (const auto* integer = std::get_if<int64_t>(scalar)) return *integer;
  }
  refuse_kind(file, key, "an integer", *value);
}

const GgufArray* find_array(const GgufFile& file, std::string_view key, std::string_view expected) {
  const GgufValue* value = find(file, key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) refuse_kind(file, key, expected, *value);
  return array;
}

template <typename T>
std::vector<T> array_or_empty(const GgufFile& file, std::string_view key, std::string_view expected) {
  const GgufArray* array = find_array(file, key, expected);
  if (array == nullptr) return {};
  const auto* values = std::get_if<std::vector<T>>(&array->values);
  if (values == nullptr) refuse_kind(file, key, expected, *array);
  return *values;
}

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& items) { return items.size(); }, values);
}

int64_t GgufFile::require_int(std::string_view key) const {
  const auto value = find_int(*this, key);
  if (!value) refuse_missing(*this, key);
  return *value;
}

double GgufFile::require_float(std::string_view key) const {
  const auto* value = find_scalar<double>(*this, key, kScalarKinds[2]);
  if (value == nullptr) refuse_missing(*this, key);
  return *value;
}

std::string GgufFile::require_string(std::string_view key) const {
  const auto* value = find_scalar<std::string_view>(*this, key, "a string");
  if (value == nullptr) refuse_missing(*this, key);
  return std::string(*value);
}

int64_t GgufFile::int_or(std::string_view key, int64_t fallback) const {
  return find_int(*this, key).value_or(fallback);
}

double GgufFile::float_or(std::string_view key, double fallback) const {
  const auto* value = find_scalar<double>(*this, key, kScalarKinds[2]);
  return value == nullptr ? fallback : *value;
}

bool GgufFile::bool_or(std::string_view key, bool fallback) const {
  const auto* value = find_scalar<bool>(*this, key, "a boolean");
  return value == nullptr ? fallback : *value;
}

std::string GgufFile::string_or(std::string_view key, std::string_view fallback) const {
  const auto* value = find_scalar<std::string_view>(*this, key, "a string");
  return std::string(value == nullptr ? fallback : *value);
}

std::vector<std::string_view> GgufFile::strings_or_empty(std::string_view key) const {
  return array_or_empty<std::string_view>(*this, key, "an array of strings");
}

std::vector<double> GgufFile::floats_or_empty(std::string_view key) const {
  return array_or_empty<double>(*this, key, "an array of numbers");
}

std::vector<int64_t> GgufFile::ints_or_empty(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of integers";
  const GgufArray* array = find_array(*this, key, kExpected);
  if (array == nullptr) return {};
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&array->values)) return *integers;
  const auto* naturals = std::get_if<std::vector<uint64_t>>(&array->values);
  if (naturals == nullptr) refuse_kind(*this, key, kExpected, *array);
  std::vector<int64_t> values;
  values.reserve(naturals->size());
  for (const uint64_t natural : *naturals) values.push_back(to_int64(*this, key, natural));
  return values;
}

}  // namespace patina
