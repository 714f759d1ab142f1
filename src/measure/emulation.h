// What reduced precision makes of an activation gradient on a GPU, emulated.
#pragma once

#include <string>
#include <vector>

#include "measure/measurement.h"
#include "measure/model_shape.h"

namespace patina {

struct EmulatedParity {
  std::string sites;
  int64_t k = 0, n = 0, t = 0;
  std::string what;  // the arithmetic, and what it is compared with
  double cosine = 0, max_relative = 0;
};

// dx = dy . W of normal numbers, at most 512 rows, as GGML's CUDA backend computes it: with a BF16 weight, and the
// gradient and the result in BF16 or F32, against an outer product whose operands are TF32 (11 significant bits). Sums
// are F32. The last line is Patina's own product with that BF16 weight against the exact result.
std::vector<EmulatedParity> emulate_ggml_cuda(const MeasureContext& context, const ProductShape& product,
                                              int64_t tokens);

}  // namespace patina
