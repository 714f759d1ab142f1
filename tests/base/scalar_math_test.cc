#include "base/scalar_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/philox.h"

namespace patina {
namespace {

constexpr double kTolerance = 2e-16;
constexpr int kDraws = 400'000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// libm in extended precision is the reference; on machines where long double is double these tests would prove nothing.
static_assert(std::numeric_limits<long double>::digits >= 64);

double relative_error(double got, long double want) {
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / want));
}

double draw(double low, double high, uint64_t index) {
  static const RandomStream stream(1, RandomUse::kTest, 1);
  return low + (high - low) * stream.uniform(index);
}

TEST(ExactExp, MatchesExtendedPrecision) {
  double worst = 0;
  const auto look_at = [&](double x) {
    const double error = relative_error(exact_exp(x), std::exp(static_cast<long double>(x)));
    worst = std::fmax(worst, error);
    ASSERT_FALSE(!(error < kTolerance)) << x;
  };
  for (int i = 0; i < kDraws; ++i) {
    look_at(draw(-700, 700, i));
    look_at(draw(-1, 1, i));
  }
  for (int k = -1000; k <= 1000; ++k) {  // the edges of the reduction: odd multiples of ln 2 / 2
    const double edge = (k + 0.5) * 0.69314718055994531;
    if (std::fabs(edge) > 699.5) continue;
    for (double x : {std::nextafter(edge, -kInfinity), edge, std::nextafter(edge, kInfinity)}) look_at(x);
  }
  for (double x : {0.0, -0.0, 1e-300, 1e-17, -1e-17, 700.0, -700.0}) look_at(x);
  RecordProperty("worst", std::to_string(worst * 1e16) + "e-16");
}

TEST(ExactExp, Edges) {
  EXPECT_EQ(exact_exp(0.0), 1.0);
  EXPECT_EQ(exact_exp(kInfinity), kInfinity);
  EXPECT_EQ(exact_exp(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(exact_exp(std::nan(""))));
  constexpr double kLargest = 0x1.62e42fefa39efp+9;
  EXPECT_LT(exact_exp(kLargest), kInfinity);
  EXPECT_LT(relative_error(exact_exp(kLargest), std::exp(static_cast<long double>(kLargest))), 1e-15);
  EXPECT_EQ(exact_exp(std::nextafter(kLargest, kInfinity)), kInfinity);
  constexpr double kSmallest = -0x1.74910d52d3051p+9;
  EXPECT_EQ(exact_exp(kSmallest), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(exact_exp(std::nextafter(kSmallest, -kInfinity)), 0.0);
  for (double x = -708.5; x > -745; x -= 0.25)  // subnormal results
    EXPECT_NEAR(exact_exp(x), std::exp(x), std::numeric_limits<double>::denorm_min()) << x;
}

TEST(ExactLog, MatchesExtendedPrecision) {
  double worst = 0;
  const auto look_at = [&](double x) {
    const double error = relative_error(exact_log(x), std::log(static_cast<long double>(x)));
    worst = std::fmax(worst, error);
    ASSERT_FALSE(!(error < kTolerance)) << x;
  };
  for (int i = 0; i < kDraws; ++i) {
    look_at(std::exp(draw(-708, 709, i)));
    look_at(draw(0.5, 2.0, i));
    look_at(1.0 + draw(-1e-6, 1e-6, i));
  }
  for (int k = -1020; k <= 1020; ++k)  // the edges of the reduction and of the binades
    for (double mantissa : {0x1.6a09e667f3bccp+0, 0x1.6a09e667f3bcdp+0, 0x1.fffffffffffffp+0, 0x1.0000000000001p+0})
      look_at(std::ldexp(mantissa, k));
  for (double x : {std::nextafter(1.0, 0.0), std::nextafter(1.0, 2.0), std::numeric_limits<double>::min(),
                   std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min(), 1e-310})
    look_at(x);
  RecordProperty("worst", std::to_string(worst * 1e16) + "e-16");
}

TEST(ExactLog, Edges) {
  EXPECT_EQ(exact_log(1.0), 0.0);
  EXPECT_EQ(exact_log(0.0), -kInfinity);
  EXPECT_EQ(exact_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exact_log(-1.0)));
  EXPECT_TRUE(std::isnan(exact_log(std::nan(""))));
}

TEST(ExactSincos, MatchesExtendedPrecision) {
  double worst = 0;
  const auto look_at = [&](double x) {
    double sine, cosine;
    exact_sincos(x, &sine, &cosine);
    const auto wide = static_cast<long double>(x);
    const auto sine_error = static_cast<double>(std::fabs(sine - std::sin(wide)));
    const auto cosine_error = static_cast<double>(std::fabs(cosine - std::cos(wide)));
    worst = std::fmax(worst, std::fmax(sine_error, cosine_error));
    ASSERT_FALSE(!(sine_error < kTolerance && cosine_error < kTolerance)) << x;
  };
  for (int i = 0; i < kDraws; ++i) {
    look_at(draw(-2e6, 2e6, i));
    look_at(draw(-10, 10, i));
  }
  for (int n = -1'270'000; n <= 1'270'000; n += 37) {  // the edges of the reduction and its cancellations
    const double multiple = n * 0.78539816339744831;
    for (double x : {std::nextafter(multiple, -kInfinity), multiple, std::nextafter(multiple, kInfinity)}) look_at(x);
  }
  for (double x : {0.0, 1e-300, -1e-10, 2e6, -2e6}) look_at(x);
  RecordProperty("worst", std::to_string(worst * 1e16) + "e-16");
}

TEST(ExactSincos, RefusesWhatItCannotReduce) {
  double sine, cosine;
  for (double x : {2.1e6, -2.1e6, kInfinity, std::nan("")})
    EXPECT_THROW(exact_sincos(x, &sine, &cosine), InternalError) << x;
}

TEST(ExactPow, Examples) {
  EXPECT_NEAR(exact_pow(10000.0, -0.25), 0.1, 1e-15);
  EXPECT_NEAR(exact_pow(2.0, 10.0), 1024.0, 1e-11);
  EXPECT_EQ(exact_pow(0.0, 2.0), 0.0);
  EXPECT_EQ(exact_pow(5.0, 0.0), 1.0);
}

}  // namespace
}  // namespace patina
