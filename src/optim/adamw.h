// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"

namespace patina {

// Double: 1 - beta2 of a beta2 rounded to F32 is off by 1e-5.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;  // decoupled
};

// One step over flat buffers: m, v updated; p -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * p), as PyTorch's
// AdamW does it (p *= 1 - lr*wd first). Element-wise in F32, so the same bits for any number of threads; the
// coefficients are computed in double. A value whose parameter, gradient and moments are zero stays zero.
class AdamW {
 public:
  AdamW(size_t parameters, const AdamWOptions& options);
  void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate, ThreadPool& pool);
  int64_t steps() const { return steps_; }
  std::span<const float> first_moment() const { return m_; }
  std::span<const float> second_moment() const { return v_; }

 private:
  AdamWOptions options_;
  std::vector<float> m_, v_;
  int64_t steps_ = 0;
};

}  // namespace patina
