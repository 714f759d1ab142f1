// The rungs of the self-test: what each checks, what it measures, and where its bar lies.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace patina {

class RungContext;

// What a rung is run again for: each type of the weights; each type and each formulation of their gradient.
enum class Repeats : uint8_t { kOnce, kByType, kByFormulation };

// Where a measured number has to lie.
struct Bar {
  enum class Side : uint8_t { kAtMost, kAtLeast };
  Side side;
  double value;
  std::string_view of = {};  // which number it is, where a rung measures several
  bool of_mm = false;        // asked of rows whose formulation is mm, and of no other

  // Never of NaN.
  bool holds(double measured) const { return side == Side::kAtMost ? measured <= value : measured >= value; }
};

constexpr Bar at_most(double value, std::string_view of = {}) { return {Bar::Side::kAtMost, value, of}; }
constexpr Bar at_least(double value, std::string_view of = {}) { return {Bar::Side::kAtLeast, value, of}; }
// Counts of mistakes, and differences that must not be.
constexpr Bar exactly_zero(std::string_view of = {}) { return at_most(0.0, of); }

struct Rung {
  std::string_view name, what;
  Repeats repeats;
  std::vector<Bar> bars;
  // A number for each bar, never negative. What it throws fails the row.
  std::vector<double> (*measure)(RungContext& context);
};

using Rungs = std::span<const Rung>;

}  // namespace patina
