// Compares numbers with a reference: every way in which they can differ is counted and reported, and NaN never passes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "support/tolerance.h"

namespace patina {

struct Comparison {
  int64_t count = 0;
  int64_t bad = 0;         // elements with !(|error| <= tolerance)
  int64_t non_finite = 0;  // where the reference is finite
  int64_t worst = -1;      // index of the largest error relative to its tolerance
  double worst_got = 0, worst_expected = 0;
  double max_error = 0, max_expected = 0;
  double relative_norm = 0;  // |got - expected|_2 / |expected|_2
  double cosine = 1;

  bool ok() const { return bad == 0; }
  std::string str() const;
};

// An infinite reference value must be met exactly.
Comparison compare(std::span<const double> got, std::span<const double> expected, Tolerance tolerance);

}  // namespace patina
