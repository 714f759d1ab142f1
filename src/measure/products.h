// The frozen products of a layer, one by one, as training runs them: through graph and executor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/formulation.h"
#include "measure/measurement.h"
#include "measure/model_shape.h"

namespace patina {

// Whether rows of K values can be stored in the type: K is a multiple of its block.
bool can_store(DType dtype, int64_t k);

// The lines of one product at `tokens` rows: for each type forward, and backward in each formulation; and alone the
// copies that formulations other than fused need, among them the one that mm would need of a dy that is not contiguous.
// A type that cannot store the rows gets a line that says so.
std::vector<Measurement> measure_product(const MeasureContext& context, const ProductShape& product, int64_t tokens,
                                         std::span<const DType> types, std::span<const Formulation> formulations);

// What all products of a layer cost in a training step: two forwards, one of them a recomputation, and one backward.
struct LayerSum {
  int64_t t = 0;
  std::string type;
  Formulation formulation = Formulation::kFused;
  double forward_ms = 0, backward_ms = 0, yardstick_forward_ms = 0, yardstick_backward_ms = 0;
  double over_outprod = 0;  // a step's speed in units of outprod's; 0: outprod was not measured
  bool invalid = false;     // one of the measurements is

  double step_ms() const { return 2 * forward_ms + backward_ms; }
  double yardstick_step_ms() const { return 2 * yardstick_forward_ms + yardstick_backward_ms; }
  // Speeds in units of the yardstick's; 0 without one.
  double forward_ratio() const { return yardstick_forward_ms / forward_ms; }
  double backward_ratio() const { return yardstick_backward_ms / backward_ms; }
  double step_ratio() const { return yardstick_step_ms() / step_ms(); }
};
// Of the types and formulations of which every product of a layer was measured.
std::vector<LayerSum> layer_sums(std::span<const Measurement> measurements);

}  // namespace patina
