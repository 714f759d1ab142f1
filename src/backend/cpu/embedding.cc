#include "ops/embedding.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"
#include "quant/decode.h"

namespace patina::cpu {

void embedding(const Op&, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const Tensor& weight = in[1];
  const Rows y(out[0]);
  const DecodeRow decode = decode_row(weight.dtype);
  PATINA_CHECK(decode != nullptr, "type {}", name(weight.dtype));
  lookups(context, y.rows, [&](int64_t begin, int64_t end) {
    for_rows(context.pool, end - begin, y.columns, [&](int64_t i) {
      const int64_t t = begin + i;
      decode(weight.row(row_index(in[0], t, weight.shape[0])), 0, y.columns, y.row(t));
    });
  });
}

}  // namespace patina::cpu
