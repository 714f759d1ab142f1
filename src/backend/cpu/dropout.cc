#include "ops/dropout.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/rows.h"

namespace patina::cpu {

void dropout(const Op& op, std::span<const Tensor> in, std::span<const Tensor> out, KernelContext& context) {
  const auto& drop = static_cast<const Dropout&>(op);
  const Rows x(in[0]), y(out[0]);
  const bool accumulate = in[4].present();
  const Rows acc(accumulate ? in[4] : out[0]);
  const int32_t step = in[1].i32()[0], *samples = in[2].i32(), *positions = in[3].i32();
  for_rows(context.pool, y.rows, y.columns, [&](int64_t r) {
    const int64_t place = in[5].present() ? row_index(in[5], r, in[3].shape[0]) : r;
    const DropoutRow random(drop, step, samples[place], positions[place], y.columns);
    const float *from = x.row(r), *before = accumulate ? acc.row(r) : nullptr;
    float* const to = y.row(r);
    for (int64_t j = 0; j < y.columns; j += 8) {
      const std::array<uint16_t, 8> words = random.words(j / 8);
      for (int64_t i = 0; i < std::min<int64_t>(8, y.columns - j); ++i) {
        const float kept = words[static_cast<size_t>(i)] >= drop.threshold ? from[j + i] * drop.scale : 0.0f;
        to[j + i] = before == nullptr ? kept : before[j + i] + kept;
      }
    }
  });
}

}  // namespace patina::cpu
