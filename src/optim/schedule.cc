#include "optim/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "base/scalar_math.h"

namespace patina {

int64_t warmup_steps(double warmup, int64_t least_steps, int64_t total_steps) {
  const bool is_fraction = warmup < 1.0;
  const double wanted = is_fraction ? warmup * static_cast<double>(total_steps) : warmup;
  const auto steps = static_cast<int64_t>(std::min(wanted + 0.5, static_cast<double>(total_steps)));
  if (!is_fraction || least_steps == 0) return steps;
  return std::min(std::max(least_steps, steps), total_steps / 2);
}

double learning_rate(const ScheduleOptions& options, int64_t step) {
  PATINA_CHECK(step >= 0 && step < options.total_steps, "step {} of {}", step, options.total_steps);
  if (step < options.warmup_steps)
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  const int64_t peak_step = std::max<int64_t>(options.warmup_steps, 1) - 1;
  const int64_t decay_steps = options.total_steps - 1 - peak_step;
  if (options.kind == Schedule::kConstant || decay_steps <= 0) return options.peak;
  const double progress = static_cast<double>(step - peak_step) / static_cast<double>(decay_steps);
  double remaining = 1 - progress;
  if (options.kind == Schedule::kCosine) {
    constexpr double kPi = 0x1.921fb54442d18p+1;
    double sine, cosine;
    exact_sincos(kPi * progress, &sine, &cosine);
    remaining = 0.5 * (1 + cosine);
  }
  return options.peak * (options.floor_ratio + (1 - options.floor_ratio) * remaining);
}

}  // namespace patina
