// Muon: momentum, made near-orthogonal by a Newton-Schulz iteration (Jordan et al., "Muon: An optimizer for hidden
// layers in neural networks", 2024). Hybrid: parameters that are no matrices stay with AdamW.
#pragma once

#include "optim/adamw.h"

namespace patina {

// For every matrix, with its gradient g:
//     b = momentum * b + g;  u = g + momentum * b (Nesterov);  X = u / (|u|_F + 1e-6)
//     five times, with rows <= cols (else of the transpose):  A = X X^T,  X = a X + (b A + c A^2) X
//     p = (1 - lr * weight_decay) * p - lr * scale * sqrt(max(1, rows / cols)) * X
// with (a, b, c) = (3.4445, -4.7750, 2.0315). The momentum is F32, what is computed from it double.
class Muon final : public Optimizer {
 public:
  Muon(std::vector<ParameterMatrix> matrices, std::unique_ptr<AdamW> rest, const MuonOptions& options);
  void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
            ThreadPool& pool) override;
  std::vector<State> state() override;
  // What a worker needs to update such a matrix.
  static int64_t scratch_bytes(const ParameterMatrix& matrix);

 private:
  // The room that one worker needs.
  struct Scratch {
    std::vector<double> u, row, gram, power, product, next;
  };
  void update(const ParameterMatrix& matrix, float* momentum, float* parameter, const float* gradient,
              double learning_rate, Scratch& scratch) const;

  MuonOptions options_;
  std::vector<ParameterMatrix> matrices_;
  std::vector<size_t> momentum_at_;  // of each matrix, in momentum_
  std::vector<float> momentum_;
  std::unique_ptr<AdamW> rest_;
  std::vector<Scratch> scratch_;  // of each worker
};

}  // namespace patina
