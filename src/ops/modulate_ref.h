// Reference of the modulation of rows (ops/modulate.h).
#pragma once

#include "ops/modulate.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void modulate(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&x = in[0], &factor = in[1], &shift = in[2], &rows = in[3], &acc = in[4], &y = out[0];
  for (int64_t t = 0; t < y.rows(); ++t) {
    const int64_t b = rows.index(t, factor.rows());
    for (int64_t j = 0; j < y.columns(); ++j)
      y.at(t, j) = (acc.present() ? acc.at(t, j) : S(0)) + (shift.present() ? shift.at(b, j) : S(0)) +
                   x.at(t, j) * factor.at(b, j);
  }
}

}  // namespace patina::reference
