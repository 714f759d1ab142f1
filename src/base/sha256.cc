#include "base/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace patina {
namespace {

// FIPS 180-4, 5.3.3: the first 32 bits of the fractional parts of the square roots of the first 8 primes.
constexpr std::array<uint32_t, 8> kInitialState = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

// FIPS 180-4, 4.2.2: the same of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

constexpr size_t kBlockBytes = 64;
constexpr size_t kLengthBytes = 8;  // the message length in bits ends the last block

}  // namespace

Sha256::Sha256() : state_(kInitialState) {}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  size_t buffered = total_bytes_ % kBlockBytes;
  total_bytes_ += left;
  if (buffered > 0) {
    const size_t take = std::min(left, kBlockBytes - buffered);
    std::copy_n(data, take, buffer_.data() + buffered);
    data += take;
    left -= take;
    buffered += take;
    if (buffered < kBlockBytes) return;
    block(buffer_.data());
  }
  for (; left >= kBlockBytes; data += kBlockBytes, left -= kBlockBytes) block(data);
  std::copy_n(data, left, buffer_.data());
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::array<uint8_t, 32> Sha256::digest() {
  const uint64_t message_bits = total_bytes_ * 8;
  size_t used = total_bytes_ % kBlockBytes;
  buffer_[used++] = 0x80;
  if (used > kBlockBytes - kLengthBytes) {
    std::fill(buffer_.begin() + used, buffer_.end(), uint8_t{0});
    block(buffer_.data());
    used = 0;
  }
  std::fill(buffer_.begin() + used, buffer_.end(), uint8_t{0});
  for (size_t i = 0; i < kLengthBytes; ++i)
    buffer_[kBlockBytes - 1 - i] = static_cast<uint8_t>(message_bits >> (8 * i));
  block(buffer_.data());
  std::array<uint8_t, 32> result;
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return result;
}

std::string Sha256::hex_digest() {
  std::string text;
  for (const uint8_t byte : digest()) text += fmt::format("{:02x}", byte);
  return text;
}

// FIPS 180-4, 6.2.2.
void Sha256::block(const uint8_t* bytes) {
  std::array<uint32_t, 64> schedule;
  for (size_t t = 0; t < 16; ++t)
    schedule[t] = uint32_t{bytes[4 * t]} << 24 | uint32_t{bytes[4 * t + 1]} << 16 | uint32_t{bytes[4 * t + 2]} << 8 |
                  uint32_t{bytes[4 * t + 3]};
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t early = schedule[t - 15], late = schedule[t - 2];
    const uint32_t sigma0 = std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3);
    const uint32_t sigma1 = std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10);
    schedule[t] = schedule[t - 16] + sigma0 + schedule[t - 7] + sigma1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t first = h + sum1 + choice + kRoundConstants[t] + schedule[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + sum0 + majority;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

}  // namespace patina
