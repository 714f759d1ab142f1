// References of the weighted squared error and its gradient (ops/squared_error.h).
#pragma once

#include "ops/reference.h"
#include "ops/squared_error.h"

namespace patina::reference {

template <typename S>
void squared_error(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&y = in[0], &target = in[1], &weight = in[2], &loss = out[0], &rows = out[1];
  S total = S(0);
  for (int64_t t = 0; t < y.rows(); ++t) {
    S sum = S(0);
    for (int64_t j = 0; j < y.columns(); ++j) {
      const S error = y.at(t, j) - target.at(t, j);
      sum += weight.at(t, j) * error * error;
    }
    rows.at(t) = sum;
    total += sum;
  }
  loss.at(0) = total;
}

template <typename S>
void squared_error_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&y = in[0], &target = in[1], &weight = in[2], &dy = out[0];
  const S twice = S(2) * in[3].at(0);
  for (int64_t t = 0; t < dy.rows(); ++t)
    for (int64_t j = 0; j < dy.columns(); ++j) dy.at(t, j) = twice * weight.at(t, j) * (y.at(t, j) - target.at(t, j));
}

}  // namespace patina::reference
