#include "optim/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace patina {
namespace {

std::vector<float> numbers(size_t count, uint32_t which) {
  const RandomStream stream(3, RandomUse::kTest, which);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

// Algorithm 2 of arXiv 1711.05101 as PyTorch's documentation of AdamW writes it, in double.
TEST(AdamW, TenStepsFollowTheFormula) {
  const size_t count = 40000;
  const double rates[] = {1e-2, 3e-3, 1e-3};
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
  ThreadPool pool(2);
  AdamW optimizer({{0, count}}, options);
  std::vector<float> p = numbers(count, 0);
  std::vector<double> expected(p.begin(), p.end()), m(count), v(count);
  for (uint32_t t = 1; t <= 10; ++t) {
    const std::vector<float> g = numbers(count, t);
    const double rate = rates[t % 3];
    optimizer.step(p, g, rate, pool);
    for (size_t i = 0; i < count; ++i) {
      expected[i] -= rate * options.weight_decay * expected[i];
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g[i];
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(options.beta1, t)), v_hat = v[i] / (1 - std::pow(options.beta2, t));
      expected[i] -= rate * m_hat / (std::sqrt(v_hat) + options.epsilon);
    }
  }
  EXPECT_EQ(optimizer.steps(), 10);
  const std::span<const float> first = optimizer.state()[0].values, second = optimizer.state()[1].values;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(std::abs(p[i] - expected[i]) <= 1e-6 * std::max(1.0, std::abs(expected[i]))) << i << " " << p[i];
    ASSERT_TRUE(std::abs(second[i] - v[i]) <= 1e-6 * v[i]) << i;
    ASSERT_TRUE(std::abs(first[i] - m[i]) <= 1e-6) << i;
  }
}

TEST(AdamW, FirstStepIsTheRateAgainstTheGradient) {
  ThreadPool pool(1);
  AdamW optimizer({{0, 3}}, {.weight_decay = 0});
  std::vector<float> p = {1, 1, 1};
  const std::vector<float> g = {1e-3f, -50, 0};
  optimizer.step(p, g, 0.5, pool);
  EXPECT_NEAR(p[0], 0.5, 1e-5);
  EXPECT_NEAR(p[1], 1.5, 1e-6);
  EXPECT_EQ(p[2], 1);
}

TEST(AdamW, SameBitsForAnyNumberOfThreads) {
  const size_t count = 70001;
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    AdamW optimizer({{0, count}}, {});
    std::vector<float> p = numbers(count, 0);
    for (uint32_t t = 1; t <= 3; ++t) optimizer.step(p, numbers(count, t), 1e-3, pool);
    results.push_back(p);
  }
  for (const std::vector<float>& result : results)
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(result[i]), std::bit_cast<uint32_t>(results[0][i])) << i;
}

TEST(AdamW, RefusesBuffersOfAnotherSize) {
  ThreadPool pool(1);
  AdamW optimizer({{0, 4}}, {});
  std::vector<float> p(3), g(3), more(5);
  EXPECT_THROW(optimizer.step(p, g, 1, pool), InternalError);
  EXPECT_THROW(optimizer.step(more, g, 1, pool), InternalError);
}

}  // namespace
}  // namespace patina
