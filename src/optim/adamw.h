// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101).
#pragma once

#include "optim/optimizer.h"

namespace patina {

// One step over its ranges: m, v updated; p -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * p), as PyTorch's
// AdamW does it (p *= 1 - lr*wd first). Element-wise in F32; the coefficients are computed in double. A value whose
// parameter, gradient and moments are zero stays zero.
class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<ParameterRange> ranges, const AdamWOptions& options);
  void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
            ThreadPool& pool) override;
  std::vector<State> state() override { return {{"adamw.m", m_}, {"adamw.v", v_}}; }

 private:
  struct Chunk {
    size_t offset, moments, count;  // in the flat buffers, in the moments
    double rate_scale;
  };

  AdamWOptions options_;
  std::vector<Chunk> chunks_;
  size_t end_ = 0;            // of the last range
  std::vector<float> m_, v_;  // range after range, without gaps
};

}  // namespace patina
