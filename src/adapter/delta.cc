#include "adapter/delta.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace patina {
namespace {

// delta += factor * values
void add(double factor, const float* values, std::span<double> delta) {
  for (size_t i = 0; i < delta.size(); ++i) delta[i] += factor * static_cast<double>(values[i]);
}

void delta_of(const LoraFactors& lora, int64_t row, std::span<const float> weight, std::span<double> delta) {
  const double scale = static_cast<double>(lora.alpha) / static_cast<double>(lora.rank);
  const auto in = static_cast<int64_t>(delta.size());
  for (int64_t r = 0; r < lora.rank; ++r)
    add(scale * static_cast<double>(lora.b[static_cast<size_t>(row * lora.rank + r)]), lora.a.data() + r * in, delta);
  if (lora.magnitude.empty()) return;
  double squares = 0.0;
  for (size_t i = 0; i < delta.size(); ++i) {
    const double value = static_cast<double>(weight[i]) + delta[i];
    squares += value * value;
  }
  // A row of zeros has no direction that a magnitude could scale.
  const double ratio =
      squares > 0.0 ? static_cast<double>(lora.magnitude[static_cast<size_t>(row)]) / std::sqrt(squares) : 1.0;
  for (size_t i = 0; i < delta.size(); ++i) {
    const double w = static_cast<double>(weight[i]);
    delta[i] = ratio * (w + delta[i]) - w;
  }
}

// A row of a factor, whole.
std::vector<double> row_of(const KroneckerFactor& factor, int64_t row) {
  std::vector<double> values(static_cast<size_t>(factor.columns));
  if (factor.is_whole()) {
    add(1.0, factor.whole.data() + row * factor.columns, values);
    return values;
  }
  const auto dim = static_cast<int64_t>(factor.a.size()) / factor.rows;
  for (int64_t d = 0; d < dim; ++d)
    add(static_cast<double>(factor.a[static_cast<size_t>(row * dim + d)]), factor.b.data() + d * factor.columns,
        values);
  return values;
}

// Row i * w2.rows + k of kron(w1, w2) is row i of w1 with row k of w2 in the place of each number.
void delta_of(const LokrFactors& lokr, int64_t row, std::span<const float>, std::span<double> delta) {
  const double scale =
      lokr.w1.is_whole() && lokr.w2.is_whole() ? 1.0 : static_cast<double>(lokr.alpha) / static_cast<double>(lokr.dim);
  const std::vector<double> outer = row_of(lokr.w1, row / lokr.w2.rows), inner = row_of(lokr.w2, row % lokr.w2.rows);
  for (size_t j = 0; j < outer.size(); ++j)
    for (size_t l = 0; l < inner.size(); ++l) delta[j * inner.size() + l] = scale * outer[j] * inner[l];
}

}  // namespace

void delta_row(const AdaptedSite& site, int64_t row, std::span<const float> weight, std::span<double> delta) {
  PATINA_CHECK(row >= 0 && row < site.out && std::ssize(weight) == site.in && std::ssize(delta) == site.in,
               "row {} of [{}, {}], spans of {} and {}", row, site.out, site.in, weight.size(), delta.size());
  std::ranges::fill(delta, 0.0);
  std::visit([&](const auto& factors) { delta_of(factors, row, weight, delta); }, site.factors);
}

}  // namespace patina
