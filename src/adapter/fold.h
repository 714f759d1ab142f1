// LoKr as LoRA, for formats that know only that.
#pragma once

#include "adapter/adapted_site.h"

namespace patina {

// kron(w1, w2) with w2 = w2.a w2.b is a product of two matrices: of w1 = L R, where L or R is a unit matrix if w1 is
// whole, kron(L, w2.a) kron(R, w2.b). Rank min(w1.rows, w1.columns) * dim, or dim * dim where w1 is low-rank too. Equal
// but for the rounding of one product of two numbers. w2 must be low-rank.
LoraFactors lora_from_lokr(const LokrFactors& lokr);

}  // namespace patina
