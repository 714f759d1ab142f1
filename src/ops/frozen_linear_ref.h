// Reference of the frozen product (ops/frozen_linear.h).
#pragma once

#include "ops/frozen_linear.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void frozen_linear(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const bool forward = static_cast<const FrozenLinear&>(op).direction == FrozenLinear::Direction::kForward;
  const RefTensor<S>&x = in[0], &w = in[1], &acc = in[2], &y = out[0];
  for (int64_t i = 0; i < y.rows(); ++i)
    for (int64_t j = 0; j < y.columns(); ++j) {
      S sum = acc.present() ? acc.at(i, j) : S(0);
      for (int64_t k = 0; k < x.columns(); ++k) sum += x.at(i, k) * (forward ? w.at(j, k) : w.at(k, j));
      y.at(i, j) = sum;
    }
}

}  // namespace patina::reference
