#include "adapter/lokr.h"

#include <gtest/gtest.h>

#include <cmath>

#include "adapter/adapter.h"
#include "adapter/prelude.h"
#include "backend/cpu/cpu_backend.h"
#include "support/branch.h"

namespace patina::testing {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// The rule as it is written down in the LyCORIS package: walk up the divisors while the sum of the pair does not grow.
Pair pair_by_walking(int64_t width, int64_t factor) {
  if (factor > 0 && width % factor == 0) return {std::min(factor, width / factor), std::max(factor, width / factor)};
  const int64_t most = factor < 0 ? width : factor;
  int64_t m = 1, n = width;
  while (m < n) {
    int64_t next = m + 1;
    while (width % next != 0) ++next;
    if (next + width / next > m + n || next > most) break;
    m = next;
    n = width / next;
  }
  return {std::min(m, n), std::max(m, n)};
}

TEST(Lokr, LK1_FactorPairs) {
  EXPECT_EQ(lokr_factor_pair(2048, 6), Pair(4, 512));
  EXPECT_EQ(lokr_factor_pair(1024, 6), Pair(4, 256));
  EXPECT_EQ(lokr_factor_pair(6144, 6), Pair(6, 1024));
  EXPECT_EQ(lokr_factor_pair(2048, -1), Pair(32, 64));
  for (int64_t width = 1; width <= 700; ++width)
    for (const int64_t factor : {-1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 64, 100, 1000})
      ASSERT_EQ(lokr_factor_pair(width, factor), pair_by_walking(width, factor)) << width << " by " << factor;
  for (const int64_t width : {2560, 3072, 4096, 4864, 9728, 11008, 14336, 28672})
    for (int64_t factor = 1; factor <= 64; ++factor)
      ASSERT_EQ(lokr_factor_pair(width, factor), pair_by_walking(width, factor)) << width << " by " << factor;
}

TEST(Lokr, LK1_WhichFactorsAreWhole) {
  // out = 4 * 512, in = 6 * 1024: w1 [4,6], w2 [512,1024].
  const auto shape = [](int64_t dim, bool both) { return lokr_shape(2048, 6144, dim, 3.0f, 6, both); };
  EXPECT_EQ(shape(511, false).w2.rank, 511);
  EXPECT_EQ(shape(512, false).w2.rank, 0) << "not less than half of the longer side";
  EXPECT_EQ(shape(2, true).w1.rank, 2);
  EXPECT_EQ(shape(3, true).w1.rank, 0);
  EXPECT_EQ(shape(2, false).w1.rank, 0);
  EXPECT_EQ(shape(16, false).scale(), 3.0f / 16);
  EXPECT_EQ(shape(600, false).scale(), 1.0f) << "both whole: alpha is dim";
  EXPECT_EQ(shape(600, false).alpha, 600.0f);
  EXPECT_EQ(shape(16, false).parameters(), 4 * 6 + 16 * (512 + 1024));
}

// The counts that the field publishes for a transformer of 32 layers, from the shapes of its layers alone.
TEST(Lokr, T2_CountsOfAPublishedModel) {
  constexpr int64_t kWidth = 2560, kHeads = 32 * 128, kKeys = 8 * 128, kForward = 9728;
  std::vector<Site> attention, all;
  for (int layer = 0; layer < 32; ++layer) {
    for (int repeat = 0; repeat < 2; ++repeat) {  // self-attention and cross-attention
      attention.push_back({layer, "q", kWidth, kHeads});
      attention.push_back({layer, "k", kWidth, kKeys});
      attention.push_back({layer, "v", kWidth, kKeys});
      attention.push_back({layer, "o", kHeads, kWidth});
    }
    for (const char* name : {"gate", "up"}) all.push_back({layer, name, kWidth, kForward});
    all.push_back({layer, "down", kForward, kWidth});
  }
  all.insert(all.end(), attention.begin(), attention.end());
  EXPECT_EQ(count_parameters(all, {.kind = AdapterKind::kLokr, .rank = 512, .alpha = 512, .factor = 6}), 228596608);
  EXPECT_EQ(count_parameters(attention, {.rank = 16}), 20971520);
  EXPECT_EQ(count_parameters(all, {.rank = 128}), 318767104);
}

TEST(Lokr, T2_CountsAreWhatIsAllocated) {
  const BranchCase subject(24, 36, DType::kF32);
  for (const AdapterKind kind : {AdapterKind::kLora, AdapterKind::kDora, AdapterKind::kLokr})
    for (const int64_t rank : {1, 2, 5, 40})
      for (const bool both : {false, true}) {
        const AdapterOptions options{.kind = kind, .rank = rank, .factor = -1, .decompose_both = both};
        EXPECT_EQ(count_parameters(subject.sites(), options),
                  Adapter(subject.sites(), options).parameters().parameters());
      }
}

struct LokrCase {
  int64_t out, in, dim, factor;
  bool both;
};
// Every order of the two products, with factors whole and not.
constexpr LokrCase kCases[] = {
    {24, 36, 1, -1, true},    // both low-rank
    {24, 36, 2, 4, false},    // w1 between the halves of w2
    {24, 36, 100, 4, false},  // both whole, w1 last
    {36, 24, 100, 4, false},  // both whole, w1 first
    {40, 12, 9, 2, false},    // a low-rank w2 that costs less as one matrix
    {13, 7, 2, 4, false},     // primes: w1 [1,1]
};

AdapterOptions options_of(const LokrCase& c) {
  return {.kind = AdapterKind::kLokr, .rank = c.dim, .alpha = 3, .factor = c.factor, .decompose_both = c.both};
}

TEST(Lokr, LK2_UntrainedIsTheFrozenProduct) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    const BranchCase subject(64, 96, dtype);
    Adapter adapter(subject.sites(), {.kind = AdapterKind::kLokr, .rank = 4, .factor = 4});
    EXPECT_EQ(subject.run(adapter), subject.run_frozen()) << name(dtype);
  }
}

// LK3: the factorised products against W + scale * kron(w1, w2), built.
TEST(Lokr, LK3_FactorisedIsMaterialised) {
  for (const LokrCase& c : kCases) {
    const BranchCase subject(c.out, c.in, DType::kF32);
    Adapter adapter(subject.sites(), options_of(c));
    disturb(adapter);
    const auto lokr = std::get<LokrFactors>(adapter.sites().at(0).factors);
    const auto whole = [](const KroneckerFactor& factor, int64_t i, int64_t j) {
      const int64_t rank = factor.is_whole() ? 0 : static_cast<int64_t>(factor.b.size()) / factor.columns;
      if (rank == 0) return static_cast<double>(factor.whole[static_cast<size_t>(i * factor.columns + j)]);
      double sum = 0;
      for (int64_t r = 0; r < rank; ++r)
        sum += static_cast<double>(factor.a[static_cast<size_t>(i * rank + r)]) *
               static_cast<double>(factor.b[static_cast<size_t>(r * factor.columns + j)]);
      return sum;
    };
    std::vector<double> weight = subject.weight();
    for (int64_t o = 0; o < c.out; ++o)
      for (int64_t i = 0; i < c.in; ++i)
        weight[static_cast<size_t>(o * c.in + i)] += static_cast<double>(lokr.scale()) *
                                                     whole(lokr.w1, o / lokr.w2.rows, i / lokr.w2.columns) *
                                                     whole(lokr.w2, o % lokr.w2.rows, i % lokr.w2.columns);
    expect_near(subject.run(adapter), subject.product(weight), 1e-5, fmt::format("{}x{} dim {}", c.out, c.in, c.dim));
  }
}

TEST(Lokr, LK4_Gradients) {
  for (const LokrCase& c : kCases) {
    const BranchCase subject(c.out, c.in, DType::kF32);
    Adapter adapter(subject.sites(), options_of(c));
    disturb(adapter);
    expect_exact_gradients(subject, adapter);
  }
}

TEST(Lokr, FromFactorsAndBack) {
  for (const LokrCase& c : kCases) {
    const BranchCase subject(c.out, c.in, DType::kF32);
    Adapter adapter(subject.sites(), options_of(c));
    disturb(adapter);
    Adapter again(subject.sites(), adapter.sites(), "x");
    EXPECT_TRUE(std::ranges::equal(again.parameters().values(), adapter.parameters().values()));
    EXPECT_EQ(subject.run(again), subject.run(adapter));
  }
}

// As LyCORIS begins: uniform within 1/sqrt(columns), and w2 or its b zero.
TEST(Lokr, FirstValues) {
  const std::vector<Site> sites = {{0, "q", 4096, 1024}, {1, "q", 4096, 1024}};
  Adapter adapter(sites, {.kind = AdapterKind::kLokr, .rank = 16, .factor = 16});
  ParameterStore& store = adapter.parameters();
  ASSERT_EQ(store.slices().size(), 6u);
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const ParameterStore::Slice& slice = store.slices()[i];
    const double bound = 1 / std::sqrt(static_cast<double>(slice.shape[1])),
                 count = static_cast<double>(slice.shape.elements());
    double squares = 0, largest = 0;
    for (int64_t j = 0; j < slice.shape.elements(); ++j) {
      const double value = static_cast<double>(store.value(i)[j]);
      squares += value * value;
      largest = std::max(largest, std::abs(value));
    }
    if (slice.name.ends_with("w2_b")) {
      EXPECT_EQ(largest, 0.0) << slice.name;
    } else {
      EXPECT_LE(largest, bound) << slice.name;
      EXPECT_NEAR(std::sqrt(squares / count) / bound, std::sqrt(1.0 / 3), 5 / std::sqrt(count)) << slice.name;
    }
  }
  EXPECT_NE(*store.value(0), *store.value(3)) << "layers differ";
}

}  // namespace
}  // namespace patina::testing
