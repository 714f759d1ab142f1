// References of the ops of row magnitudes (ops/row_magnitude.h).
#pragma once

#include "ops/reference.h"
#include "ops/row_magnitude.h"

namespace patina::reference {

template <typename S>
void row_magnitude(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&z = in[0], &m = in[1], &norm = in[2], &acc = in[3], &y = out[0];
  for (int64_t t = 0; t < y.rows(); ++t)
    for (int64_t n = 0; n < y.columns(); ++n)
      y.at(t, n) = (acc.present() ? acc.at(t, n) : S(0)) + m.at(n) / norm.at(n) * z.at(t, n);
}

template <typename S>
void row_magnitude_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&z = in[0], &m = in[1], &norm = in[2], &dy = in[3], &acc = in[4], &dm = out[0], &dz = out[1];
  for (int64_t n = 0; n < dz.columns(); ++n) {
    S sum = S(0);
    for (int64_t t = 0; t < dz.rows(); ++t) {
      sum += dy.at(t, n) * z.at(t, n);
      dz.at(t, n) = m.at(n) / norm.at(n) * dy.at(t, n);
    }
    dm.at(n) = (acc.present() ? acc.at(n) : S(0)) + sum / norm.at(n);
  }
}

template <typename S>
void adapted_row_norms(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  using std::sqrt;
  const S scale = static_cast<S>(static_cast<const AdaptedRowNorms&>(op).scale);
  const S least = static_cast<S>(kLeastRowNorm * kLeastRowNorm);
  const RefTensor<S>&squares = in[1], &wa = in[2], &ba = in[3], &b = in[4], &norm = out[0];
  for (int64_t n = 0; n < b.columns(); ++n) {
    S change = S(0);
    for (int64_t r = 0; r < b.rows(); ++r) change += b.at(r, n) * (S(2) * wa.at(r, n) + scale * ba.at(r, n));
    const S square = squares.at(n) + scale * change;
    norm.at(n) = sqrt(std::real(square) > std::real(least) ? square : least);
  }
}

}  // namespace patina::reference
