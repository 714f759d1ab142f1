// Learning-rate schedules.
#pragma once

#include <cstdint>

namespace patina {

// Steps of warm-up of a run of total_steps, at most all. `warmup`: 1 or more is steps; below 1 a fraction, rounded,
// and where least_steps > 0 min(max(least_steps, warmup * total_steps), total_steps / 2).
int64_t warmup_steps(double warmup, int64_t least_steps, int64_t total_steps);

enum class Schedule : uint8_t { kCosine, kLinear, kConstant };
struct ScheduleOptions {
  Schedule kind = Schedule::kCosine;
  double peak = 1e-4;
  double floor_ratio = 0.1;  // the last step's rate / peak, cosine and linear
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
};
// The rate of step 0 <= step < total_steps. Warm-up is linear and never zero: step 0 has peak / warmup_steps, step
// warmup_steps - 1 (or 0 without warm-up) the peak, the last step peak * floor_ratio. The same bits on every machine.
double learning_rate(const ScheduleOptions& options, int64_t step);

}  // namespace patina
