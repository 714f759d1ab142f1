#include "formats/printable.h"

#include <fmt/format.h>

namespace patina {

std::string printable(std::string_view text) {
  constexpr size_t kMaxBytes = 100;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMaxBytes ? "...\"" : "\"");
}

}  // namespace patina
