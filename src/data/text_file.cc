#include "data/text_file.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"

namespace patina {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Bytes of the well-formed character at the start of a text (which is not empty), 0 where there is none. The bounds of
// the second byte exclude overlong forms and surrogates.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < count; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return count;
}

void check_utf8(const std::filesystem::path& path, std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t count = character_bytes(text.substr(i));
    if (count == 0)
      fail(Error::Kind::kData, "{}:{}: expected UTF-8, found byte 0x{:02X} out of place; convert the file to UTF-8",
           path.string(), 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
           static_cast<uint8_t>(text[i]));
    i += count;
  }
}

}  // namespace

TextFile read_text_file(const std::filesystem::path& path) {
  TextFile file;
  file.text = read_file(path);
  Sha256 hash;
  hash.update(file.text);
  file.fingerprint = hash.hex_digest();
  check_utf8(path, file.text);
  if (file.text.starts_with(kByteOrderMark)) file.text.erase(0, kByteOrderMark.size());
  return file;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace patina
