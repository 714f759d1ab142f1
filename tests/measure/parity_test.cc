#include "measure/parity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "measure/machine.h"
#include "measure/random_weight.h"
#include "measure/rounds.h"
#include "quant/decode.h"

namespace patina::testing {
namespace {

TEST(Parity, TellsErrorsAndNeverPassesNaN) {
  const std::vector<double> exact = {3, -4, 0, 0};
  const Parity same = compare_with_exact(exact, exact, 0);
  EXPECT_EQ(same.rms_relative, 0);
  EXPECT_TRUE(same.ok());
  const Parity off = compare_with_exact(std::vector<double>{3, -4, 0.5, 0}, exact, 0.05);
  EXPECT_DOUBLE_EQ(off.max_relative, 0.5 / 4);
  EXPECT_DOUBLE_EQ(off.rms_relative, 0.1);
  EXPECT_FALSE(off.ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Parity broken = compare_with_exact(std::vector<double>{3, -4, nan, 0}, exact, 1e9);
  EXPECT_FALSE(broken.ok());
  EXPECT_TRUE(std::isnan(broken.max_relative));
}

TEST(Parity, ComparesTheFirstAndTheLastRow) {
  EXPECT_EQ(compared_rows(1), (std::vector<int64_t>{0}));
  EXPECT_EQ(compared_rows(3), (std::vector<int64_t>{0, 1, 2}));
  const std::vector<int64_t> rows = compared_rows(512);
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows.front(), 0);
  EXPECT_EQ(rows.back(), 511);
}

TEST(Parity, ExactProductIsTheProduct) {
  ThreadPool pool(2);
  const int64_t n = 70, k = 288;  // more than a task in both directions
  const OperandMemory memory = random_stored_weight(DType::kQ8_0, n, k, 1, pool);
  const Tensor weight = dense(memory.data(), DType::kQ8_0, {n, k});
  const OperandMemory w = decoded(weight, pool);
  for (const bool forward : {true, false}) {
    const int64_t in = forward ? k : n, out = forward ? n : k, rows = 3;
    std::vector<double> x(static_cast<size_t>(rows * in));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
    const ExactProduct exact = exact_product(
        x, weight, forward ? FrozenLinear::Direction::kForward : FrozenLinear::Direction::kBackward, pool);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < out; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < in; ++i)
          sum += x[static_cast<size_t>(r * in + i)] * static_cast<double>(w.f32()[forward ? j * k + i : i * k + j]);
        ASSERT_NEAR(exact.values[static_cast<size_t>(r * out + j)], sum, 1e-10);
      }
    EXPECT_GT(exact.bound, 0x1p-24);
    EXPECT_LT(exact.bound, 1e-4);
  }
}

TEST(RandomWeight, RoundsToNearestEven) {
  EXPECT_EQ(rounded_to_bits(1 + 0x1p-8f, 8), 1.0f) << "a tie, to even";
  EXPECT_EQ(rounded_to_bits(1 + 0x3p-8f, 8), 1 + 0x1p-6f);
  EXPECT_EQ(rounded_to_bits(-1 - 0x1.8p-8f, 8), -1 - 0x1p-7f);
  EXPECT_EQ(rounded_to_bits(1 + 0x1p-10f, 11), 1 + 0x1p-10f);
}

TEST(RandomWeight, NarrowFloatsAreTheF32OnesRounded) {
  ThreadPool pool(3);
  const int64_t rows = 37, columns = 1001;
  const OperandMemory f32 = random_stored_weight(DType::kF32, rows, columns, 5, pool);
  for (const auto& [dtype, bits] : {std::pair{DType::kBF16, 8}, {DType::kF16, 11}}) {
    const OperandMemory memory = random_stored_weight(dtype, rows, columns, 5, pool);
    const OperandMemory narrow = decoded(dense(memory.data(), dtype, {rows, columns}), pool);
    double squares = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = f32.f32()[i];
      squares += static_cast<double>(value) * static_cast<double>(value);
      const bool subnormal = dtype == DType::kF16 && std::abs(value) < 0x1p-14f;
      ASSERT_EQ(narrow.f32()[i], subnormal ? std::nearbyint(value * 0x1p24f) * 0x1p-24f : rounded_to_bits(value, bits));
    }
    EXPECT_NEAR(squares / static_cast<double>(rows * columns), 1, 0.05);
  }
}

TEST(RandomWeight, DoesNotDependOnThreads) {
  ThreadPool one(1), three(3);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ6_K}) {
    const OperandMemory a = random_stored_weight(dtype, 65, 1024, 5, one),
                        b = random_stored_weight(dtype, 65, 1024, 5, three);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(65 * bytes_of(dtype, 1024))), 0) << name(dtype);
  }
}

TEST(Rounds, GivesEveryContenderItsTurns) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  int runs = 0, warm_ups = 0;
  std::vector<Contender> contenders(2);
  for (Contender& contender : contenders) {
    contender.run = [&] { ++runs; };
    contender.warm_up = [&] { ++warm_ups; };
  }
  EXPECT_TRUE(measure_rounds(contenders, 3)) << "without a yardstick there is nothing to disagree with";
  for (const Contender& contender : contenders) EXPECT_EQ(contender.samples_ms.size(), 3u);
  EXPECT_EQ(runs, 2 + 3 * (contenders[0].calls + contenders[1].calls));
}

TEST(Machine, KnowsItsPeakAndItself) {
  ThreadPool pool(2);
  EXPECT_GT(multiply_add_peak(pool), 0.1);
  EXPECT_NE(cpu_model_name(), "");
  EXPECT_GE(OtherLoad().cores(), 0);
}

}  // namespace
}  // namespace patina::testing
