// Reference of the F32 product (ops/matmul.h).
#pragma once

#include "ops/matmul.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void matmul(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const auto& product = static_cast<const MatMul&>(op);
  const S scale = static_cast<S>(product.scale);
  const RefTensor<S>&a = in[0], &b = in[1], &acc = in[2], &y = out[0];
  for (int64_t i = 0; i < y.rows(); ++i)
    for (int64_t j = 0; j < y.columns(); ++j) {
      S sum = acc.present() ? acc.at(i, j) : S(0);
      for (int64_t k = 0; k < a.columns(); ++k)
        sum += scale * a.at(i, k) * (product.transposed ? b.at(j, k) : b.at(k, j));
      y.at(i, j) = sum;
    }
}

}  // namespace patina::reference
