// Reference of dropout (ops/dropout.h).
#pragma once

#include "ops/dropout.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void dropout(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const auto& drop = static_cast<const Dropout&>(op);
  const RefTensor<S>&x = in[0], &acc = in[4], &rows = in[5], &y = out[0];
  for (int64_t t = 0; t < y.rows(); ++t) {
    const int64_t place = rows.present() ? rows.index(t, in[3].shape[0]) : t;
    const DropoutRow row(drop, in[1].ints[0], in[2].ints[place], in[3].ints[place], y.columns());
    for (int64_t j = 0; j < y.columns(); ++j) {
      const bool kept = row.words(j / 8)[static_cast<size_t>(j % 8)] >= drop.threshold;
      y.at(t, j) = (acc.present() ? acc.at(t, j) : S(0)) + (kept ? x.at(t, j) * S(drop.scale) : S(0));
    }
  }
}

}  // namespace patina::reference
