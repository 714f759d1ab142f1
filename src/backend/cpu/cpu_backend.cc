#include "backend/cpu/cpu_backend.h"

#include <hwy/highway.h>

#include <algorithm>

#include "backend/cpu/kernels.h"

namespace patina {

namespace {

constexpr KernelEntry kTable[] = {
    {"adapted_row_norms", cpu::adapted_row_norms, nullptr},
    {"add", cpu::add, nullptr},
    {"attention", cpu::attention, cpu::attention_scratch_bytes},
    {"attention_grad", cpu::attention_grad, cpu::attention_grad_scratch_bytes},
    {"cache_append", cpu::cache_append, nullptr},
    {"cross_entropy", cpu::cross_entropy, nullptr},
    {"cross_entropy_grad", cpu::cross_entropy_grad, nullptr},
    {"dense_copy", cpu::dense_copy, nullptr},
    {"dropout", cpu::dropout, nullptr},
    {"embedding", cpu::embedding, nullptr},
    {"f32_copy", cpu::f32_copy, nullptr},
    {"frozen_linear", cpu::frozen_linear, cpu::matrix_product_scratch},
    {"gather_rows", cpu::gather_rows, nullptr},
    {"head_loss", cpu::head_loss, cpu::head_loss_scratch},
    {"matmul", cpu::matmul, cpu::matrix_product_scratch},
    {"mix_blocks", cpu::mix_blocks, nullptr},
    {"mix_blocks_grad", cpu::mix_blocks_grad, cpu::mix_blocks_grad_scratch},
    {"modulate", cpu::modulate, nullptr},
    {"outer_product", cpu::outer_product, nullptr},
    {"pad_columns", cpu::pad_columns, nullptr},
    {"repeat_row", cpu::repeat_row, nullptr},
    {"rms_norm", cpu::rms_norm, nullptr},
    {"rms_norm_grad", cpu::rms_norm_grad, nullptr},
    {"rope", cpu::rope, nullptr},
    {"row_magnitude", cpu::row_magnitude, cpu::row_magnitude_scratch},
    {"row_magnitude_grad", cpu::row_magnitude_grad, cpu::row_magnitude_grad_scratch},
    {"scale_by", cpu::scale_by, nullptr},
    {"scatter_rows", cpu::scatter_rows, nullptr},
    {"silu", cpu::silu, nullptr},
    {"squared_error", cpu::squared_error, nullptr},
    {"squared_error_grad", cpu::squared_error_grad, nullptr},
    {"swiglu", cpu::swiglu, nullptr},
    {"swiglu_grad", cpu::swiglu_grad, nullptr},
    {"transposed_copy", cpu::transposed_copy, nullptr},
};

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  const KernelEntry& kernel(std::string_view op) const override {
    const auto* found = std::ranges::find(kTable, op, &KernelEntry::op);
    PATINA_CHECK(found != std::end(kTable), "op {} has no CPU kernel", op);
    return *found;
  }
};

std::string_view isa_name(int64_t target) {
#if HWY_ARCH_X86
  if (target == HWY_AVX3) return "AVX-512";
#endif
  if (target == HWY_SCALAR || target == HWY_EMU128) return "portable";
  return hwy::TargetName(target);
}

// What was compiled and this machine has; the lowest bit, first here, is the best. Asked for once, before use_isa()
// hides any.
const std::vector<int64_t>& all_targets() {
  static const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

std::string_view cpu_isa() { return isa_name(hwy::SupportedAndGeneratedTargets().front()); }

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const int64_t target : all_targets()) names.emplace_back(isa_name(target));
  return names;
}

void use_isa(std::string_view isa) {
  const auto found = std::ranges::find(all_targets(), isa, isa_name);
  PATINA_CHECK(isa.empty() || found != all_targets().end(), "this machine has no {}", isa);
  hwy::SetSupportedTargetsForTest(isa.empty() ? 0 : *found);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace patina
