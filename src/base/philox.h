// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A number depends only on its indices, never on how many were drawn before it.
#pragma once

#include <array>
#include <cstdint>

namespace patina {

// Ten rounds of Philox4x32 on one counter. Matches the published known-answer vectors.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a stream of random numbers is for: part of the key, so that no two uses can collide.
enum class RandomUse : uint32_t { kInitialise = 1, kShuffle = 2, kDropout = 3, kSample = 4, kNoise = 5, kTest = 6 };

// Numbers indexed by (seed, use, a, b, index): for example use = kDropout, a = optimizer step, b = sample id.
// `site` distinguishes tensors.
//
// Layout: counter = {index low, index high, a, b}; key = Philox(counter 0, key = seed)[0..1] xor {site, use}. So under
// one seed, different (use, site, a, b, index) are different (counter, key) pairs always, and neighbouring seeds share
// no keys (short of a coincidence of 64 hashed bits). The layout is fixed: results of runs depend on it.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomUse use, uint32_t site, uint32_t a = 0, uint32_t b = 0);

  std::array<uint32_t, 4> bits(uint64_t index) const;  // four words at one index
  double uniform(uint64_t index) const;                // in [0, 1), 53 bits
  double normal(uint64_t index) const;                 // standard normal (Box-Muller, our own log and cosine)
  // Uniform in [0, bound), bound > 0; no value's probability is off by more than 2^-64 (one multiplication, no
  // rejection).
  uint64_t below(uint64_t bound, uint64_t index) const;

 private:
  std::array<uint32_t, 2> key_;
  uint32_t a_, b_;
};

}  // namespace patina
