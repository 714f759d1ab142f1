#include "support/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace patina {

std::string Comparison::str() const {
  return fmt::format(
      "{} of {} values differ, {} not finite; worst at {}: got {}, expected {}; max |error| {}, max |expected| {}, "
      "relative norm {}, cosine {}",
      bad, count, non_finite, worst, worst_got, worst_expected, max_error, max_expected, relative_norm, cosine);
}

Comparison compare(std::span<const double> got, std::span<const double> expected, Tolerance tolerance) {
  PATINA_CHECK(got.size() == expected.size(), "{} values for {}", got.size(), expected.size());
  Comparison result;
  result.count = static_cast<int64_t>(got.size());
  double worst_ratio = -1, errors = 0, norm = 0, got_norm = 0, inner = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = expected[i];
    if (!std::isfinite(b) && a == b) continue;
    const double error = std::abs(a - b), allowed = tolerance.absolute + tolerance.relative * std::abs(b);
    if (!std::isfinite(a) && std::isfinite(b)) ++result.non_finite;
    const bool good = std::isfinite(error) && error <= allowed;  // an infinite tolerance lets nothing through either
    if (!good) ++result.bad;
    // NaN and infinity are worse than anything.
    const double ratio = !std::isfinite(error) ? HUGE_VAL : error == 0 ? 0 : error / allowed;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      result.worst = static_cast<int64_t>(i);
      result.worst_got = a;
      result.worst_expected = b;
    }
    result.max_error = std::max(result.max_error, error);
    result.max_expected = std::max(result.max_expected, std::abs(b));
    errors += error * error;
    norm += b * b;
    got_norm += a * a;
    inner += a * b;
  }
  if (norm > 0) {
    result.relative_norm = std::sqrt(errors / norm);
    result.cosine = inner / std::sqrt(norm * got_norm);
  }
  return result;
}

}  // namespace patina
