// AdamW (Loshchilov and Hutter, arXiv 1711.05101), global-norm clipping and learning-rate schedules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"

namespace patina {

struct AdamWOptions {
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float weight_decay = 0.01f;  // decoupled
};

// One step over flat buffers: m, v updated; p -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * p), as PyTorch's AdamW does it
// (p *= 1 - lr*wd first). Element-wise, so the same for any number of threads.
class AdamW {
 public:
  AdamW(size_t parameters, const AdamWOptions& options);
  void step(std::span<float> parameters, std::span<const float> gradients, float learning_rate, ThreadPool& pool);
  int64_t steps() const { return steps_; }
  std::span<const float> first_moment() const { return m_; }
  std::span<const float> second_moment() const { return v_; }

 private:
  AdamWOptions options_;
  std::vector<float> m_, v_;
  int64_t steps_ = 0;
};

// The 2-norm over the whole buffer: fixed partial sums in double, the same for any number of threads.
double global_norm(std::span<const float> gradients, ThreadPool& pool);
// Scales gradients so that their norm is at most max_norm (0 = off). Returns the factor applied (1 where none).
double clip(std::span<float> gradients, double norm, double max_norm, ThreadPool& pool);

enum class Schedule : uint8_t { kCosine, kLinear, kConstant };
struct ScheduleOptions {
  Schedule kind = Schedule::kCosine;
  double peak = 1e-4;
  double floor_ratio = 0.1;  // the last step's rate / peak, cosine and linear
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
};
// The rate of step 0 <= step < total_steps. Warm-up is linear and never zero: step 0 has peak / warmup_steps.
double learning_rate(const ScheduleOptions& options, int64_t step);

}  // namespace patina
