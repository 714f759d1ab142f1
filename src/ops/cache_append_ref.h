// Reference of the cache update (ops/cache_append.h).
#pragma once

#include "ops/cache_append.h"
#include "ops/reference.h"

namespace patina::reference {

template <typename S>
void cache_append(const Op&, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out) {
  const RefTensor<S>&x = in[1], &cache = out[0];  // out[0] is in[0]
  const int64_t first = in[2].index(0, cache.rows() + 1);
  PATINA_CHECK(first + x.rows() <= cache.rows(), "rows {} at {} of {}", x.rows(), first, cache.rows());
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t j = 0; j < x.columns(); ++j) cache.at(first + t, j) = x.at(t, j);
}

}  // namespace patina::reference
