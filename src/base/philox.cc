#include "base/philox.h"

#include <cmath>

#include "base/error.h"
#include "base/scalar_math.h"

namespace patina {
namespace {

constexpr int kRounds = 10;
constexpr std::array<uint64_t, 2> kMultipliers = {0xD2511F53, 0xCD9E8D57};
constexpr std::array<uint32_t, 2> kWeyl = {0x9E3779B9,
                                           0xBB67AE85};  // golden ratio and sqrt(3) - 1, as fractions of 2^32

uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// The upper 53 bits as a fraction in [0, 1).
double unit_interval(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultipliers[0] * counter[0];
    const uint64_t product1 = kMultipliers[1] * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl[0], key[1] + kWeyl[1]};
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, RandomUse use, uint32_t site, uint32_t a, uint32_t b) : a_(a), b_(b) {
  const auto hashed = philox4x32({0, 0, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  key_ = {hashed[0] ^ site, hashed[1] ^ static_cast<uint32_t>(use)};
}

std::array<uint32_t, 4> RandomStream::bits(uint64_t index) const {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), a_, b_}, key_);
}

double RandomStream::uniform(uint64_t index) const {
  const auto words = bits(index);
  return unit_interval(join(words[0], words[1]));
}

double RandomStream::normal(uint64_t index) const {
  constexpr double kTwoPi = 0x1.921fb54442d18p+2;
  const auto words = bits(index);
  const double radius_uniform = 1.0 - unit_interval(join(words[0], words[1]));  // in (0, 1]: its logarithm is finite
  double sine, cosine;  // std::sqrt is exact to the last bit on every IEEE machine
  exact_sincos(kTwoPi * unit_interval(join(words[2], words[3])), &sine, &cosine);
  return std::sqrt(-2.0 * exact_log(radius_uniform)) * cosine;
}

uint64_t RandomStream::below(uint64_t bound, uint64_t index) const {
  PATINA_CHECK(bound > 0, "there is no number below 0");
  const auto words = bits(index);
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{join(words[0], words[1])} * bound) >> 64);
}

}  // namespace patina
