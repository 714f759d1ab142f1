// References of the products of blocks (ops/mix_blocks.h).
#pragma once

#include "ops/mix_blocks.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void mix_blocks(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const bool transposed = static_cast<const MixBlocks&>(op).transposed;
  const RefTensor<S>&x = in[0], &w = in[1], &acc = in[2], &y = out[0];
  const int64_t to = transposed ? w.columns() : w.rows(), from = transposed ? w.rows() : w.columns();
  const int64_t columns = x.columns() / from;
  for (int64_t t = 0; t < y.rows(); ++t)
    for (int64_t i = 0; i < to; ++i)
      for (int64_t c = 0; c < columns; ++c) {
        S sum = acc.present() ? acc.at(t, i * columns + c) : S(0);
        for (int64_t p = 0; p < from; ++p) sum += (transposed ? w.at(p, i) : w.at(i, p)) * x.at(t, p * columns + c);
        y.at(t, i * columns + c) = sum;
      }
}

template <typename S>
void mix_blocks_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&left = in[0], &right = in[1], &acc = in[2], &dw = out[0];
  const int64_t columns = left.columns() / dw.rows();
  for (int64_t i = 0; i < dw.rows(); ++i)
    for (int64_t p = 0; p < dw.columns(); ++p) {
      S sum = acc.present() ? acc.at(i, p) : S(0);
      for (int64_t t = 0; t < left.rows(); ++t)
        for (int64_t c = 0; c < columns; ++c) sum += left.at(t, i * columns + c) * right.at(t, p * columns + c);
      dw.at(i, p) = sum;
    }
}

}  // namespace patina::reference
