#include "ops/reference.h"

#include "ops/attention_ref.h"
#include "ops/cache_append_ref.h"
#include "ops/copy_ref.h"
#include "ops/cross_entropy_ref.h"
#include "ops/dropout_ref.h"
#include "ops/elementwise_ref.h"
#include "ops/embedding_ref.h"
#include "ops/frozen_linear_ref.h"
#include "ops/head_loss_ref.h"
#include "ops/matmul_ref.h"
#include "ops/mix_blocks_ref.h"
#include "ops/modulate_ref.h"
#include "ops/outer_product_ref.h"
#include "ops/rms_norm_ref.h"
#include "ops/rope_ref.h"
#include "ops/row_magnitude_ref.h"
#include "ops/squared_error_ref.h"

namespace patina {

namespace {

template <typename S>
struct Row {
  std::string_view op;
  ReferenceKernel<S> run;
};

template <typename S>
constexpr Row<S> kTable[] = {
    {"adapted_row_norms", reference::adapted_row_norms<S>},
    {"add", reference::add<S>},
    {"attention", reference::attention<S>},
    {"attention_grad", reference::attention_grad<S>},
    {"cache_append", reference::cache_append<S>},
    {"cross_entropy", reference::cross_entropy<S>},
    {"cross_entropy_grad", reference::cross_entropy_grad<S>},
    {"dense_copy", reference::copy<S>},
    {"dropout", reference::dropout<S>},
    {"embedding", reference::embedding<S>},
    {"f32_copy", reference::copy<S>},
    {"frozen_linear", reference::frozen_linear<S>},
    {"gather_rows", reference::gather_rows<S>},
    {"head_loss", reference::head_loss<S>},
    {"matmul", reference::matmul<S>},
    {"mix_blocks", reference::mix_blocks<S>},
    {"mix_blocks_grad", reference::mix_blocks_grad<S>},
    {"modulate", reference::modulate<S>},
    {"outer_product", reference::outer_product<S>},
    {"pad_columns", reference::pad_columns<S>},
    {"repeat_row", reference::repeat_row<S>},
    {"rms_norm", reference::rms_norm<S>},
    {"rms_norm_grad", reference::rms_norm_grad<S>},
    {"rope", reference::rope<S>},
    {"row_magnitude", reference::row_magnitude<S>},
    {"row_magnitude_grad", reference::row_magnitude_grad<S>},
    {"scale_by", reference::scale_by<S>},
    {"scatter_rows", reference::scatter_rows<S>},
    {"silu", reference::silu<S>},
    {"squared_error", reference::squared_error<S>},
    {"squared_error_grad", reference::squared_error_grad<S>},
    {"swiglu", reference::swiglu<S>},
    {"swiglu_grad", reference::swiglu_grad<S>},
    {"transposed_copy", reference::transposed_copy<S>},
};

}  // namespace

template <typename S>
ReferenceKernel<S> reference_kernel(std::string_view op) {
  for (const Row<S>& row : kTable<S>)
    if (row.op == op) return row.run;
  PATINA_CHECK(false, "op {} has no reference", op);
  return nullptr;
}

template ReferenceKernel<float> reference_kernel<float>(std::string_view);
template ReferenceKernel<double> reference_kernel<double>(std::string_view);
template ReferenceKernel<std::complex<double>> reference_kernel<std::complex<double>>(std::string_view);

}  // namespace patina
