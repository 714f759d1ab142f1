// Reference of the sum of outer products (ops/outer_product.h).
#pragma once

#include "ops/outer_product.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void outer_product(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&dy = in[0], &w = in[1], &acc = in[2], &dx = out[0];
  for (int64_t i = 0; i < dx.rows(); ++i)
    for (int64_t j = 0; j < dx.columns(); ++j) dx.at(i, j) = acc.present() ? acc.at(i, j) : S(0);
  for (int64_t n = 0; n < dy.columns(); ++n)
    for (int64_t i = 0; i < dx.rows(); ++i)
      for (int64_t j = 0; j < dx.columns(); ++j) dx.at(i, j) += dy.at(i, n) * w.at(n, j);
}

}  // namespace patina::reference
