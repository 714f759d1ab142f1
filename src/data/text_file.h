// Text files as data sets need them: checked UTF-8, and the hash of the bytes as they lie on disk.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace patina {

struct TextFile {
  std::string text;         // UTF-8, without a byte order mark
  std::string fingerprint;  // SHA-256 of the file's bytes, 64 hex digits
};

// Error(kIo) as read_file; Error(kData) naming the line of the first byte that is not UTF-8 (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF).
TextFile read_text_file(const std::filesystem::path& path);

// True where the text is empty or ASCII white space only.
bool is_blank(std::string_view text);

// The text in double quotes with JSON's escapes, on one line whatever it holds; bytes that are no UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace patina
