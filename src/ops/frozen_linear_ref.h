// Reference of the frozen product (ops/frozen_linear.h).
#pragma once

#include "ops/frozen_linear.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void frozen_linear(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const auto& attributes = static_cast<const FrozenLinear&>(op);
  const bool forward = attributes.direction == FrozenLinear::Direction::kForward;
  const RefTensor<S>&x = in[0], &w = in[1], &acc = in[2], &y = out[0];
  for (int64_t i = 0; i < y.rows(); ++i)
    for (int64_t j = 0; j < y.columns(); ++j) {
      S sum = acc.present() ? acc.at(i, j) : S(0);
      const auto add_branch = [&](bool first) {
        if (!attributes.branch || attributes.branch->first != first) return;
        const RefTensor<S>&left = in[3], &right = in[4];
        for (int64_t r = 0; r < left.columns(); ++r)
          sum += S(attributes.branch->scale) * left.at(i, r) *
                 (attributes.branch->transposed ? right.at(j, r) : right.at(r, j));
      };
      add_branch(true);
      for (int64_t k = 0; k < x.columns(); ++k) sum += x.at(i, k) * (forward ? w.at(j, k) : w.at(k, j));
      add_branch(false);
      y.at(i, j) = sum;
    }
}

}  // namespace patina::reference
