// CRC-32C (Castagnoli; RFC 3720, appendix B.4), for records of event files.
#pragma once

#include <cstdint>
#include <string_view>

namespace patina {

uint32_t crc32c(std::string_view bytes);

}  // namespace patina
