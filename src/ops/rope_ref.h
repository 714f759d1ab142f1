// Reference of the rotary embedding (ops/rope.h).
#pragma once

#include "ops/reference.h"
#include "ops/rope.h"

namespace patina::reference {

template <typename S>
void rope(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const auto& rotation = static_cast<const Rope&>(op);
  const RefTensor<S>&x = in[0], &positions = in[1], &table = in[2], &y = out[0];
  const int64_t half = table.columns() / 2;
  for (int64_t t = 0; t < x.rows(); ++t) {
    const int64_t position = positions.index(t, table.rows());
    for (int64_t head = 0; head < x.columns(); head += rotation.width) {
      for (int64_t i = 0; i < half; ++i) {
        const S c = table.at(position, i),
                s = rotation.inverse ? -table.at(position, half + i) : table.at(position, half + i);
        const S a = x.at(t, head + i), b = x.at(t, head + half + i);
        y.at(t, head + i) = a * c - b * s;
        y.at(t, head + half + i) = b * c + a * s;
      }
      for (int64_t i = 2 * half; i < rotation.width; ++i) y.at(t, head + i) = x.at(t, head + i);
    }
  }
}

}  // namespace patina::reference
