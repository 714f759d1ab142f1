// References of the root-mean-square norm and its gradient (ops/rms_norm.h).
#pragma once

#include "ops/reference.h"
#include "ops/rms_norm.h"

namespace patina::reference {

template <typename S>
void rms_norm(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  using std::sqrt;
  const S eps = static_cast<S>(static_cast<const RmsNorm&>(op).eps);
  const RefTensor<S>&x = in[0], &w = in[1], &y = out[0], &rstd = out[1];
  const S width = static_cast<S>(static_cast<float>(x.columns()));
  for (int64_t t = 0; t < x.rows(); ++t) {
    S squares = S(0);
    for (int64_t j = 0; j < x.columns(); ++j) squares += x.at(t, j) * x.at(t, j);
    rstd.at(t) = S(1) / sqrt(squares / width + eps);
    for (int64_t j = 0; j < x.columns(); ++j) y.at(t, j) = x.at(t, j) * rstd.at(t) * w.at(j);
  }
}

template <typename S>
void rms_norm_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&x = in[0], &w = in[1], &rstd = in[2], &dy = in[3], &acc = in[4], &dx = out[0];
  const S width = static_cast<S>(static_cast<float>(x.columns()));
  for (int64_t t = 0; t < x.rows(); ++t) {
    S sum = S(0);
    for (int64_t j = 0; j < x.columns(); ++j) sum += dy.at(t, j) * w.at(j) * x.at(t, j);
    const S r = rstd.at(t), along = r * r * sum / width;
    for (int64_t j = 0; j < x.columns(); ++j)
      dx.at(t, j) = (acc.present() ? acc.at(t, j) : S(0)) + r * (dy.at(t, j) * w.at(j) - x.at(t, j) * along);
  }
}

}  // namespace patina::reference
