// All frozen products of a decoder layer in one graph, one after the other, as a training step meets them.
#pragma once

#include <span>
#include <vector>

#include "ir/formulation.h"
#include "measure/measurement.h"
#include "measure/model_shape.h"

namespace patina {

// The lines of one forward and one backward of a layer at `tokens` rows: the yardstick's products, then each type in
// each formulation. Attention and all else between the products are left out: q goes into o, gate into down;
// cross-attention's q and o lie between (its k and v do not depend on T). Every type can store rows of each product.
std::vector<Measurement> measure_layer(const MeasureContext& context, const ModelShape& shape, int64_t tokens,
                                       std::span<const DType> types, std::span<const Formulation> formulations);

}  // namespace patina
