// References of the cross-entropy and its gradient (ops/cross_entropy.h).
#pragma once

#include "ops/cross_entropy.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void cross_entropy(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  using std::exp, std::log;
  const RefTensor<S>&logits = in[0], &labels = in[1], &acc = in[2], &loss = out[0], &lse = out[1];
  S total = acc.present() ? acc.at(0) : S(0);
  for (int64_t m = 0; m < logits.rows(); ++m) {
    // The shift cancels, so that it may be complex like the logit it is.
    S shift = logits.at(m, 0);
    for (int64_t v = 1; v < logits.columns(); ++v)
      if (std::real(logits.at(m, v)) > std::real(shift)) shift = logits.at(m, v);
    S sum = S(0);
    for (int64_t v = 0; v < logits.columns(); ++v) sum += exp(logits.at(m, v) - shift);
    lse.at(m) = log(sum) + shift;
    total += lse.at(m) - logits.at(m, labels.index(m, logits.columns()));
  }
  loss.at(0) = total;
}

template <typename S>
void cross_entropy_grad(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  using std::exp;
  const RefTensor<S>&logits = in[0], &labels = in[1], &lse = in[2], &dloss = in[3], &dlogits = out[0];
  for (int64_t m = 0; m < dlogits.rows(); ++m)
    for (int64_t v = 0; v < dlogits.columns(); ++v) {
      const S p = exp(logits.at(m, v) - lse.at(m));
      dlogits.at(m, v) = dloss.at(0) * (v == labels.index(m, logits.columns()) ? p - S(1) : p);
    }
}

}  // namespace patina::reference
