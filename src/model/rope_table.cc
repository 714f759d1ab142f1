#include "model/rope_table.h"

#include "base/scalar_math.h"

namespace patina {

std::vector<float> rope_table(const RopeSpec& spec, int64_t positions) {
  const int64_t half = spec.width / 2;
  std::vector<float> table(static_cast<size_t>(positions * spec.width));
  for (int64_t i = 0; i < half; ++i) {
    double frequency = exact_pow(spec.base, -2.0 * static_cast<double>(i) / static_cast<double>(spec.width));
    if (!spec.divisors.empty()) frequency /= static_cast<double>(spec.divisors[static_cast<size_t>(i)]);
    for (int64_t p = 0; p < positions; ++p) {
      double sine = 0.0, cosine = 0.0;
      exact_sincos(static_cast<double>(p) * spec.position_scale * frequency, &sine, &cosine);
      table[static_cast<size_t>(p * spec.width + i)] = static_cast<float>(cosine);
      table[static_cast<size_t>(p * spec.width + half + i)] = static_cast<float>(sine);
    }
  }
  return table;
}

float score_scale(int64_t head_width) { return static_cast<float>(exact_pow(static_cast<double>(head_width), -0.5)); }

}  // namespace patina
