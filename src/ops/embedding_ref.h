// Reference of the table look-up (ops/embedding.h).
#pragma once

#include "ops/embedding.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void embedding(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t t = 0; t < out[0].rows(); ++t)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(t, j) = in[1].at(in[0].index(t, in[1].rows()), j);
}

}  // namespace patina::reference
