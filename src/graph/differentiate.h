// Reverse-mode differentiation: appends gradient nodes to a graph by each op's own rule.
#pragma once

#include <map>

#include "ir/graph.h"

namespace patina {

struct Differentiation {
  ValueId seed =
      kNoValue;  // input [1] F32: d objective / d loss, bound by the caller (1 / supervised count of the step)
  std::map<ValueId, ValueId> gradient;  // value -> its gradient, for the trainables and for `also`
  FormulationCounts formulations;
};

// Gradients of `loss` [1]. gradients_of maps each trainable to the kState value that accumulates its gradient:
// contributions are added in place, so the caller zeroes it once per optimizer step. Only values that lie between a
// trainable (or a value in `also`: inputs or computed values, for tests) and the loss are differentiated; frozen
// weights never get a gradient. `formulation` says how the gradients of frozen products are computed
// (docs/formulations.md); the result counts what the graph holds.
Differentiation differentiate(Graph& graph, ValueId loss, const std::map<ValueId, ValueId>& gradients_of,
                              const std::vector<ValueId>& also = {}, Formulation formulation = Formulation::kFused);

}  // namespace patina
