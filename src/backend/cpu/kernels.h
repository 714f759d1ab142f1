// What the files of this folder define: one kernel an op, and the scratch sizes of those that need some.
#pragma once

#include "backend/backend.h"

namespace patina::cpu {

using KernelFunction = std::remove_pointer_t<Kernel>;
using ScratchFunction = std::remove_pointer_t<ScratchBytes>;

KernelFunction adapted_row_norms;
KernelFunction add;
KernelFunction attention;
ScratchFunction attention_scratch_bytes;
KernelFunction attention_grad;
ScratchFunction attention_grad_scratch_bytes;
KernelFunction cache_append;
KernelFunction cross_entropy;
KernelFunction cross_entropy_grad;
KernelFunction dense_copy;
KernelFunction dropout;
KernelFunction embedding;
KernelFunction f32_copy;
KernelFunction frozen_linear;
KernelFunction gather_rows;
KernelFunction head_loss;
KernelFunction matmul;
KernelFunction mix_blocks;
KernelFunction mix_blocks_grad;
ScratchFunction mix_blocks_grad_scratch;
KernelFunction modulate;
KernelFunction outer_product;
KernelFunction pad_columns;
KernelFunction repeat_row;
KernelFunction rms_norm;
KernelFunction rms_norm_grad;
KernelFunction rope;
KernelFunction row_magnitude;
KernelFunction row_magnitude_grad;
ScratchFunction row_magnitude_scratch;
ScratchFunction row_magnitude_grad_scratch;
KernelFunction scale_by;
KernelFunction scatter_rows;
KernelFunction silu;
KernelFunction squared_error;
KernelFunction squared_error_grad;
KernelFunction swiglu;
KernelFunction swiglu_grad;
KernelFunction transposed_copy;

ScratchFunction head_loss_scratch;
ScratchFunction matrix_product_scratch;  // frozen_linear and matmul

}  // namespace patina::cpu
