// Reference of the output head and its loss (ops/head_loss.h).
#pragma once

#include <algorithm>
#include <vector>

#include "ops/head_loss.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void head_loss(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  using std::exp, std::log;
  const bool with_gradient = static_cast<const HeadLoss&>(op).with_gradient;
  const RefTensor<S>&h = in[0], &w = in[1], &labels = in[2], &loss = out[0];
  loss.at(0) = S(0);
  std::vector<S> logits(static_cast<size_t>(w.rows()));
  for (int64_t m = 0; m < h.rows(); ++m) {
    const int64_t label = labels.index(m, w.rows());
    for (int64_t v = 0; v < w.rows(); ++v) {
      S& logit = logits[static_cast<size_t>(v)] = S(0);
      for (int64_t d = 0; d < h.columns(); ++d) logit += h.at(m, d) * w.at(v, d);
    }
    // The shift cancels, so that it may be complex like the logit it is.
    const S shift = *std::ranges::max_element(logits, {}, [](S logit) { return std::real(logit); });
    S sum = S(0);
    for (const S logit : logits) sum += exp(logit - shift);
    loss.at(0) += log(sum) + shift - logits[static_cast<size_t>(label)];
    if (!with_gradient) continue;
    for (int64_t d = 0; d < h.columns(); ++d) {
      S& dh = out[1].at(m, d) = -w.at(label, d);
      for (int64_t v = 0; v < w.rows(); ++v) dh += exp(logits[static_cast<size_t>(v)] - shift) / sum * w.at(v, d);
    }
  }
}

}  // namespace patina::reference
