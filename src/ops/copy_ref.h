// References of the copies (ops/copy.h). Weights arrive decoded and in row-map order.
#pragma once

#include "ops/copy.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void copy(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(i, j);
}

template <typename S>
void transposed_copy(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  for (int64_t i = 0; i < out[0].rows(); ++i)
    for (int64_t j = 0; j < out[0].columns(); ++j) out[0].at(i, j) = in[0].at(j, i);
}

}  // namespace patina::reference
