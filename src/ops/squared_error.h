// Weighted squared error: the loss of flow matching.
#pragma once

#include "ir/graph.h"

namespace patina {

// y, target, weight [T,N]. rows [T] = sum_j weight_tj (y_tj - target_tj)^2; loss [1] = sum_t rows_t. T may be 0.
// Outputs: loss, rows. Gradient of y alone.
struct SquaredError : Op {
  std::string_view name() const override { return "squared_error"; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
// (y, target, weight, dloss [1]) -> dy [T,N] = 2 dloss * weight * (y - target). May work in place.
struct SquaredErrorGrad : Op {
  std::string_view name() const override { return "squared_error_grad"; }
  int in_place_input() const override { return 0; }
};

struct SquaredErrorValues {
  ValueId loss, rows;
};
SquaredErrorValues squared_error(Graph& graph, ValueId y, ValueId target, ValueId weight, std::string_view label);

}  // namespace patina
