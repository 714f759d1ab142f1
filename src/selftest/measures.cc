#include "selftest/measures.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace patina {

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return a < b ? b : a;
}

double relative_error(std::span<const double> got, std::span<const double> expected) {
  PATINA_CHECK(got.size() == expected.size(), "{} numbers for {}", got.size(), expected.size());
  double errors = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    errors += (got[i] - expected[i]) * (got[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return std::isfinite(errors) ? std::sqrt(errors / squares) : std::numeric_limits<double>::quiet_NaN();
}

double relative_error(double got, double expected) {
  return relative_error(std::span(&got, 1), std::span(&expected, 1));
}

double worst_parameter(const ParameterStore& store, std::span<const double> got, std::span<const double> expected) {
  double worst = 0;
  for (const ParameterStore::Slice& slice : store.slices()) {
    const size_t offset = static_cast<size_t>(slice.offset), count = static_cast<size_t>(slice.shape.elements());
    worst = larger(worst, relative_error(got.subspan(offset, count), expected.subspan(offset, count)));
  }
  return worst;
}

double differences(std::span<const double> got, std::span<const double> expected) {
  PATINA_CHECK(got.size() == expected.size(), "{} numbers for {}", got.size(), expected.size());
  double count = 0;
  for (size_t i = 0; i < got.size(); ++i) count += got[i] == expected[i] ? 0 : 1;  // NaN differs from all
  return count;
}

std::vector<double> as_doubles(std::span<const float> numbers) { return {numbers.begin(), numbers.end()}; }

}  // namespace patina
