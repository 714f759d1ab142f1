// Root-mean-square norm (Zhang and Sennrich, arXiv 1910.07467).
#pragma once

#include "ir/graph.h"

namespace patina {

// y [T,D] = x * rstd * w,  rstd [T] = 1 / sqrt(mean_d x^2 + eps). w [D] F32, frozen. Outputs: y, rstd (saved).
// Per-head norms take x as a view [T*H, C].
struct RmsNorm : Op {
  explicit RmsNorm(float epsilon) : eps(epsilon) {}
  std::string_view name() const override { return "rms_norm"; }
  std::string attributes() const override { return fmt::format("eps={}", eps); }
  void gradient(GradientBuilder& builder, const Node& node) const override;
  float eps;
};

// (x, w, rstd, dy, acc) -> dx = acc + rstd * (dy*w - x * rstd^2 * mean_d(dy*w*x)). acc optional, may share storage with
// dx.
struct RmsNormGrad : Op {
  std::string_view name() const override { return "rms_norm_grad"; }
  int in_place_input() const override { return 4; }
};

ValueId rms_norm(Graph& graph, ValueId x, ValueId weight, float eps, std::string_view label);

}  // namespace patina
