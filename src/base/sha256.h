// SHA-256 (FIPS 180-4), for fingerprints of models and data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace patina {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::array<uint8_t, 32> digest();  // ends the computation
  std::string hex_digest();          // the same, as 64 lower-case hex digits

 private:
  void block(const uint8_t* bytes);
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_{};
  uint64_t total_bytes_ = 0;
};

}  // namespace patina
