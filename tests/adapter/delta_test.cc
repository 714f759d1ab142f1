#include "adapter/delta.h"

#include <gtest/gtest.h>

#include "adapter/fold.h"
#include "adapter/matrix.h"

namespace patina {
namespace {

using namespace patina::testing;

Matrix factor(const KroneckerFactor& f, int64_t dim) {
  if (f.is_whole()) return matrix(f.rows, f.columns, f.whole);
  return product(matrix(f.rows, dim, f.a), matrix(dim, f.columns, f.b));
}

TEST(Delta, LoraAndDora) {
  for (const bool dora : {false, true}) {
    const AdaptedSite site = lora_site(0, "q", 7, 5, 3, 4.5f, dora);
    const auto& lora = std::get<LoraFactors>(site.factors);
    Matrix expected = scaled(1.5, product(matrix(5, 3, lora.b), matrix(3, 7, lora.a)));
    if (dora) expected = with_magnitude(expected, matrix(5, 1, lora.magnitude), weight_of(site));
    EXPECT_TRUE(distance(delta_of(site), expected) <= 1e-14) << dora;
  }
}

TEST(Delta, Lokr) {
  for (const bool low1 : {false, true})
    for (const bool low2 : {false, true}) {
      const AdaptedSite site = lokr_site(0, "q", {2, 5, 3, 4}, 2, 7, low1, low2);
      const auto& lokr = std::get<LokrFactors>(site.factors);
      const double scale = low1 || low2 ? 3.5 : 1.0;
      EXPECT_TRUE(distance(delta_of(site), scaled(scale, kron(factor(lokr.w1, 2), factor(lokr.w2, 2)))) <= 1e-14)
          << low1 << low2;
    }
}

// A row of W + B A that is zero has no direction: nothing is done to it.
TEST(Delta, DoraOfNothing) {
  AdaptedSite site = lora_site(0, "q", 3, 2, 1, 1, true);
  std::get<LoraFactors>(site.factors).b.assign(2, 0.0f);
  const std::vector<float> zeros(3, 0.0f);
  std::vector<double> delta(3, 1.0);
  delta_row(site, 1, zeros, delta);
  EXPECT_EQ(delta, std::vector<double>(3, 0.0));
}

TEST(Fold, LokrAsLora) {
  for (const KronShape shape : {KronShape{2, 5, 3, 4}, KronShape{3, 4, 2, 6}})
    for (const bool low1 : {false, true}) {
      AdaptedSite site = lokr_site(0, "q", shape, 2, 7, low1, true);
      const Matrix expected = delta_of(site);
      const LoraFactors lora = lora_from_lokr(std::get<LokrFactors>(site.factors));
      EXPECT_EQ(lora.rank, 4);
      site.factors = lora;
      EXPECT_TRUE(distance(delta_of(site), expected) <= 3e-7) << low1;
    }
}

}  // namespace
}  // namespace patina
