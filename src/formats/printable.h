// Names from untrusted files, for messages.
#pragma once

#include <string>
#include <string_view>

namespace patina {

// The text in double quotes on one line: control and non-ASCII bytes as \xNN, cut after 100 bytes.
std::string printable(std::string_view text);

}  // namespace patina
