#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/error.h"

namespace patina {
namespace {

using Words = std::array<uint32_t, 4>;

// The known-answer vectors of the Random123 distribution.
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The layout of counters and keys is part of the results of runs: it must not change.
TEST(RandomStream, LayoutIsFixed) {
  const auto hashed = philox4x32({0, 0, 0, 0}, {0x89abcdef, 0x01234567});
  const RandomStream stream(0x0123456789abcdef, RandomUse::kDropout, 5, 6, 7);
  EXPECT_EQ(stream.bits(0x1122334455667788),
            philox4x32({0x55667788, 0x11223344, 6, 7}, {hashed[0] ^ 5, hashed[1] ^ 3}));
}

TEST(RandomStream, EveryIndexMatters) {
  std::set<Words> seen;
  int drawn = 0;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (RandomUse use : {RandomUse::kInitialise, RandomUse::kShuffle, RandomUse::kTest})
      for (uint32_t site : {0u, 1u, 2u})
        for (uint32_t a : {0u, 1u, 2u})
          for (uint32_t b : {0u, 1u, 2u})
            for (uint64_t index : {0ull, 1ull, 2ull, 1ull << 32}) {
              seen.insert(RandomStream(seed, use, site, a, b).bits(index));
              ++drawn;
            }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(RandomStream, UniformMoments) {
  const RandomStream stream(1, RandomUse::kTest, 0);
  constexpr int kDraws = 100'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(i);
    ASSERT_TRUE(u >= 0.0 && u < 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
}

TEST(RandomStream, NormalMomentsAndTails) {
  const RandomStream stream(2, RandomUse::kTest, 0);
  constexpr int kDraws = 100'000;
  std::array<double, 5> moments{};
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.normal(i);
    double power = 1;
    for (double& moment : moments) moment += power / kDraws, power *= x;
    beyond_two += std::fabs(x) > 2.0;
  }
  // Five standard errors; the variances of x, x^2, x^3, x^4 are 1, 2, 15, 96.
  const double unit = 5 / std::sqrt(double{kDraws});
  EXPECT_NEAR(moments[1], 0, unit);
  EXPECT_NEAR(moments[2], 1, unit * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, unit * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, unit * std::sqrt(96.0));
  const double expected = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two / double{kDraws}, expected, unit * std::sqrt(expected * (1 - expected)));
}

TEST(RandomStream, BelowIsUniform) {
  const RandomStream stream(3, RandomUse::kTest, 0);
  constexpr int kBound = 7, kDraws = 70'000;
  std::vector<int> counts(kBound);
  for (int i = 0; i < kDraws; ++i) ++counts.at(stream.below(kBound, i));
  double chi_squared = 0;
  for (const int count : counts) chi_squared += std::pow(count - 10'000, 2) / 10'000;
  EXPECT_LT(chi_squared, 22.5);  // 99.9 % point with 6 degrees of freedom
  EXPECT_EQ(stream.below(1, 0), 0u);
  EXPECT_GT(stream.below(~0ull, 0), 1ull << 32);
  EXPECT_THROW(stream.below(0, 0), InternalError);
}

}  // namespace
}  // namespace patina
