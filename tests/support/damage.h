// Systematic damage to a file: what a parser of untrusted bytes has to survive.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace patina {

// Calls check(damaged bytes) for the file cut at every byte; for every bit of the first header_bytes flipped; and for
// every 1, 2, 4 and 8 bytes of them overwritten with extreme values.
template <typename Check>
void for_each_damage(const std::string& bytes, size_t header_bytes, Check check) {
  for (size_t size = 0; size < bytes.size(); ++size) check(bytes.substr(0, size));
  for (size_t at = 0; at < header_bytes; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      check(damaged);
    }
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{0x7fffffff}, uint64_t{1} << 31, uint64_t{0xffffffff}, uint64_t{1} << 32,
          uint64_t{1} << 61, ~uint64_t{0} >> 1, uint64_t{1} << 63, ~uint64_t{0} - 31, ~uint64_t{0}}) {
      for (const size_t width : {1u, 2u, 4u, 8u}) {
        if (at + width > header_bytes) continue;
        std::string damaged = bytes;
        std::memcpy(damaged.data() + at, &value, width);
        if (damaged != bytes) check(damaged);
      }
    }
  }
}

}  // namespace patina
