#include "optim/clip.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/philox.h"

namespace patina {
namespace {

std::vector<float> numbers(size_t count) {
  const RandomStream stream(4, RandomUse::kTest, 0);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

TEST(GlobalNorm, SmallAndLargeBuffers) {
  ThreadPool pool(2);
  EXPECT_EQ(global_norm({}, pool), 0.0);
  EXPECT_EQ(global_norm(std::vector<float>{3, -4}, pool), 5.0);
  for (const size_t count : {1, 7, 8, 9, 16383, 16384, 16385, 100003}) {
    const std::vector<float> values = numbers(count);
    long double sum = 0;
    for (const float value : values) sum += static_cast<long double>(value) * value;
    const double expected = static_cast<double>(std::sqrt(sum));
    EXPECT_TRUE(std::abs(global_norm(values, pool) - expected) <= 1e-14 * expected) << count;
  }
}

TEST(GlobalNorm, SameBitsForAnyNumberOfThreads) {
  const std::vector<float> values = numbers(200001);
  ThreadPool one(1);
  const auto expected = std::bit_cast<uint64_t>(global_norm(values, one));
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(std::bit_cast<uint64_t>(global_norm(values, pool)), expected) << threads;
  }
}

TEST(GlobalNorm, ShowsWhatIsNotFinite) {
  ThreadPool pool(1);
  std::vector<float> values = numbers(50);
  values[49] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(global_norm(values, pool)));
  values[49] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(global_norm(values, pool)));
}

TEST(Clip, BringsTheNormDownToTheLimitAndNeverUp) {
  ThreadPool pool(2);
  std::vector<float> values = numbers(40000);
  const std::vector<float> before = values;
  const double norm = global_norm(values, pool);
  EXPECT_EQ(clip(values, norm, 0, pool), 1.0);  // off
  EXPECT_EQ(clip(values, norm, norm, pool), 1.0);
  EXPECT_EQ(clip(values, norm, 2 * norm, pool), 1.0);
  EXPECT_EQ(values, before);
  EXPECT_EQ(clip(values, norm, 0.5, pool), 0.5 / norm);
  EXPECT_TRUE(std::abs(global_norm(values, pool) - 0.5) <= 1e-6);
  EXPECT_TRUE(std::abs(values[39999] / before[39999] * norm - 0.5) <= 1e-6);
  EXPECT_THROW(clip(values, std::nan(""), 1, pool), InternalError);
}

}  // namespace
}  // namespace patina
