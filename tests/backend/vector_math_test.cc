// The kernels' exp, log and sums: accuracy, special values, and the same bits on every instruction set with fused
// multiply-add.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/philox.h"
#include "support/tolerance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/vector_math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/reduce-inl.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

void exp_all(const float* x, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR { at.store(exp(Floats(), at.load(x)), y); });
}
void log_all(const float* x, int64_t n, float* y) {
  for_vectors(n, [&](auto at) HWY_ATTR { at.store(log(Floats(), at.load(x)), y); });
}
float dot_all(const float* a, const float* b, int64_t n) {
  return sum16(n, [&](FloatVector sum, auto at) HWY_ATTR { return hn::MulAdd(at.load(a), at.load(b), sum); });
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina {
namespace cpu {
HWY_EXPORT(exp_all);
HWY_EXPORT(log_all);
HWY_EXPORT(dot_all);
std::vector<float> exp_of(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(exp_all)(x.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}
std::vector<float> log_of(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(log_all)(x.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}
float dot_of(const float* a, const float* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(dot_all)(a, b, n); }
}  // namespace cpu

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every 997th float: all exponents, many mantissas, both signs, infinities and NaN among them.
std::vector<float> many_floats() {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 997)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return floats;
}

// The largest error in units in the last place of the correct result; NaN, zero and infinity must be met.
double worst_ulps(const std::vector<float>& x, const std::vector<float>& y, double (*exact)(double)) {
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    const float rounded = static_cast<float>(expected);
    if (!std::isfinite(rounded)) {
      const bool met = std::isnan(rounded) ? std::isnan(y[i]) : y[i] == rounded;
      // The last finite numbers may round either way.
      if (!met && !(std::abs(expected) < 3.4028237e38)) return kInf;
      continue;
    }
    const float magnitude = std::max(std::abs(rounded), std::numeric_limits<float>::min());
    const double ulp = std::ldexp(1.0, std::ilogb(magnitude) - 23);
    const double error = std::abs(static_cast<double>(y[i]) - expected) / ulp;
    if (!(error <= worst)) worst = std::isnan(error) ? static_cast<double>(kInf) : error;
  }
  return worst;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << i << ": " << a[i] << " and " << b[i];
}

class VectorMath : public testing::Test {
 protected:
  ~VectorMath() override { use_isa(""); }
};

TEST_F(VectorMath, AccurateAndTheSameBitsOnEveryTarget) {
  const std::vector<float> x = many_floats();
  struct Function {
    std::vector<float> (*run)(const std::vector<float>&);
    double (*exact)(double);
  };
  for (const Function& function : {Function{cpu::exp_of, std::exp}, Function{cpu::log_of, std::log}}) {
    std::vector<float> first;
    for (const std::string& isa : cpu_isas()) {
      SCOPED_TRACE(isa);
      use_isa(isa);
      const std::vector<float> y = function.run(x);
      EXPECT_LE(worst_ulps(x, y, function.exact), isa == "portable" ? 1.5 : 0.9);
      if (isa == "portable") continue;
      if (first.empty()) first = y;
      expect_same_bits(first, y);
    }
  }
}

TEST_F(VectorMath, SpecialValues) {
  for (const std::string& isa : cpu_isas()) {
    SCOPED_TRACE(isa);
    use_isa(isa);
    const std::vector<float> e = cpu::exp_of({-kInf, kInf, 0.0f, -0.0f, -104.0f, 89.0f, -1e30f, 1e30f, kNan});
    EXPECT_EQ(std::vector<float>(e.begin(), e.end() - 1), (std::vector<float>{0, kInf, 1, 1, 0, kInf, 0, kInf}));
    EXPECT_TRUE(std::isnan(e.back()));
    const std::vector<float> l = cpu::log_of({0.0f, -0.0f, kInf, 1.0f, -1.0f, -kInf, kNan});
    EXPECT_EQ(std::vector<float>(l.begin(), l.begin() + 4), (std::vector<float>{-kInf, -kInf, kInf, 0}));
    for (size_t i = 4; i < l.size(); ++i) EXPECT_TRUE(std::isnan(l[i])) << i;
  }
}

TEST_F(VectorMath, SumsOfEveryLength) {
  const RandomStream random(1, RandomUse::kTest, 2);
  std::vector<float> a, b;
  for (uint64_t i = 0; i < 300; ++i) {
    a.push_back(static_cast<float>(random.normal(2 * i)));
    b.push_back(static_cast<float>(random.normal(2 * i + 1)));
  }
  for (int64_t n = 0; n < 300; ++n) {
    double exact = 0, terms = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      exact += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      terms += std::abs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
    }
    float first = kNan;
    for (const std::string& isa : cpu_isas()) {
      use_isa(isa);
      const float sum = cpu::dot_of(a.data(), b.data(), n);
      ASSERT_LE(std::abs(static_cast<double>(sum) - exact), (static_cast<double>(n) / 16 + 7) * kUnitRoundoff * terms)
          << n << isa;
      if (isa == "portable") continue;
      if (std::isnan(first)) first = sum;
      ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(first)) << n << isa;
    }
  }
}

}  // namespace
}  // namespace patina
#endif  // HWY_ONCE
