#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace patina {
namespace {

std::vector<double> rates(const ScheduleOptions& options) {
  std::vector<double> values;
  for (int64_t step = 0; step < options.total_steps; ++step) values.push_back(learning_rate(options, step));
  return values;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(std::abs(got[i] - expected[i]) <= 1e-15) << i << " " << got[i];
}

TEST(Schedule, LinearWithWarmUp) {
  expect_near(rates({.kind = Schedule::kLinear, .peak = 1, .floor_ratio = 0.2, .warmup_steps = 4, .total_steps = 8}),
              {0.25, 0.5, 0.75, 1, 0.8, 0.6, 0.4, 0.2});
}

TEST(Schedule, LinearWithoutWarmUpBeginsAtThePeak) {
  expect_near(rates({.kind = Schedule::kLinear, .peak = 2, .floor_ratio = 0, .total_steps = 5}), {2, 1.5, 1, 0.5, 0});
}

TEST(Schedule, CosineFallsFromPeakToFloor) {
  const ScheduleOptions options{.peak = 1, .floor_ratio = 0.1, .warmup_steps = 1, .total_steps = 5};
  const double quarter = std::sqrt(0.5) / 2;
  expect_near(rates(options), {1, 0.1 + 0.9 * (0.5 + quarter), 0.55, 0.1 + 0.9 * (0.5 - quarter), 0.1});
}

TEST(Schedule, Constant) {
  expect_near(rates({.kind = Schedule::kConstant, .peak = 3, .warmup_steps = 2, .total_steps = 4}), {1.5, 3, 3, 3});
}

TEST(Schedule, NoStepIsZeroOrAboveThePeak) {
  for (const Schedule kind : {Schedule::kCosine, Schedule::kLinear, Schedule::kConstant})
    for (int64_t total = 1; total <= 12; ++total)
      for (int64_t warmup = 0; warmup <= 13; ++warmup) {
        const std::vector<double> values =
            rates({.kind = kind, .peak = 1, .floor_ratio = 0.1, .warmup_steps = warmup, .total_steps = total});
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_TRUE(values[i] > 0 && values[i] <= 1) << total << " " << warmup << " " << i << " " << values[i];
          const bool falls = static_cast<int64_t>(i) >= std::max<int64_t>(warmup, 1);
          EXPECT_TRUE(!falls || values[i] <= values[i - 1]) << total << " " << warmup << " " << i;
        }
      }
}

TEST(Schedule, WarmUpIsAFractionOrSteps) {
  for (const auto& [length, total, expected] :
       {std::tuple{0.05, 100, 5}, std::tuple{0.05, 10, 1}, std::tuple{0.0, 10, 0}, std::tuple{3.0, 10, 3},
        std::tuple{30.0, 10, 10}})
    EXPECT_EQ(warmup_steps(length, 0, total), expected) << length << " of " << total;
}

// min(max(50, ratio * total), total / 2), worked out by hand.
TEST(Schedule, WarmUpWithALeast) {
  for (const auto& [ratio, total, expected] :
       {std::tuple{0.05, 4000, 200}, std::tuple{0.05, 1000, 50}, std::tuple{0.05, 400, 50}, std::tuple{0.05, 100, 50},
        std::tuple{0.05, 99, 49}, std::tuple{0.0, 1000, 50}, std::tuple{0.9, 1000, 500}, std::tuple{0.05, 2, 1},
        std::tuple{0.05, 1, 0}})
    EXPECT_EQ(warmup_steps(ratio, 50, total), expected) << ratio << " of " << total;
  EXPECT_EQ(warmup_steps(7, 50, 1000), 7) << "steps are steps";
}

TEST(Schedule, RefusesStepsOutside) {
  const ScheduleOptions options{.total_steps = 3};
  EXPECT_THROW(learning_rate(options, 3), InternalError);
  EXPECT_THROW(learning_rate(options, -1), InternalError);
}

}  // namespace
}  // namespace patina
