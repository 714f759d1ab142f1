#include "ops/cache_append.h"

#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

namespace patina::cpu {

void cache_append(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Rows x(in[1]), cache(out[0]);
  const int64_t first = row_index(in[2], 0, cache.rows + 1);
  PATINA_CHECK(first + x.rows <= cache.rows, "rows {} at {} of {}", x.rows, first, cache.rows);
  for_rows(context.pool, x.rows, x.columns, [&](int64_t t) {
    std::memcpy(cache.row(first + t), x.row(t), static_cast<size_t>(x.columns) * sizeof(float));
  });
}

}  // namespace patina::cpu
