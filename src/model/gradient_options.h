// How the gradients of a model's loss are computed.
#pragma once

#include "ir/formulation.h"

namespace patina {

// Neither choice changes a bit of them.
struct GradientOptions {
  Formulation formulation = Formulation::kFused;  // of frozen products (docs/formulations.md)
  // 1: all forward values are kept for backward. More: the layers are cut into so many segments, and only what crosses
  // their borders is kept; the rest is computed again (graph/recompute.h).
  int segments = 1;
};

}  // namespace patina
