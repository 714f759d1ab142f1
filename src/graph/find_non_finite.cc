#include "graph/find_non_finite.h"

#include <bit>

namespace patina {

namespace {

bool all_finite(const Tensor& tensor) {
  if (tensor.dtype != DType::kF32) return true;
  const int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
  for (int64_t r = 0; r < tensor.shape[0]; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const uint32_t bits = std::bit_cast<uint32_t>(
          tensor.f32()[r * tensor.strides[0] + (tensor.shape.rank() == 2 ? c * tensor.strides[1] : 0)]);
      if ((bits & 0x7f800000u) == 0x7f800000u) return false;
    }
  return true;
}

}  // namespace

std::string find_non_finite(Executor& executor, std::span<const int64_t> sizes) {
  std::string found;
  executor.run(sizes, [&](const Executor::Finished& finished) {
    if (!found.empty()) return;
    for (const Tensor& output : finished.outputs)
      if (!all_finite(output)) found = fmt::format("{} at {}", finished.node.op->name(), finished.node.label);
  });
  return found;
}

}  // namespace patina
