// One graph per op and shape, for the harness (op_case.h).
#pragma once

#include "ops/frozen_linear.h"
#include "support/op_case.h"

namespace patina {

// How the inputs lie: as columns of wider values, or in computed values that die at the op, so that it may work in
// place.
enum class Layout : uint8_t { kStrided, kComputed };

OpCase add_case(int64_t rows, int64_t columns, Layout layout);
OpCase scale_by_case(int64_t rows, int64_t columns, Layout layout);
OpCase silu_case(int64_t rows, int64_t columns, Layout layout);
OpCase repeat_row_case(int64_t rows, int64_t columns, Layout layout);
OpCase modulate_case(int64_t rows, int64_t columns, bool shift, bool acc, Layout layout);
OpCase squared_error_case(int64_t rows, int64_t columns, Layout layout);
OpCase squared_error_grad_case(int64_t rows, int64_t columns, Layout layout);
OpCase swiglu_case(int64_t rows, int64_t columns, Layout layout);
OpCase swiglu_grad_case(int64_t rows, int64_t columns, Layout layout);
// A selection of `selected` of the rows.
OpCase gather_rows_case(int64_t rows, int64_t selected, int64_t columns, Layout layout);
OpCase scatter_rows_case(int64_t rows, int64_t selected, int64_t columns, Layout layout);
OpCase pad_columns_case(int64_t rows, int64_t columns, Layout layout);
OpCase embedding_case(DType dtype, int64_t tokens, int64_t vocabulary, int64_t columns);
OpCase rms_norm_case(int64_t rows, int64_t columns, Layout layout);
OpCase rms_norm_grad_case(int64_t rows, int64_t columns, bool acc, Layout layout);
// `rotated` of `width` columns in each head.
OpCase rope_case(int64_t rows, int64_t heads, int64_t width, int64_t rotated, bool inverse, Layout layout);
OpCase cache_append_case(int64_t capacity, int64_t first, int64_t rows, int64_t columns);
OpCase head_loss_case(DType dtype, int64_t rows, int64_t width, int64_t vocabulary, bool with_gradient = true);

// x is [m,k] with W [n,k] forward, [m,n] with W [n,k] backward.
struct FrozenLinearShape {
  int64_t m, n, k;
  DType dtype = DType::kF32;
  bool row_map = false, acc = false, few_rows = false;
};
OpCase frozen_linear_case(FrozenLinear::Direction direction, const FrozenLinearShape& shape, Layout layout);

// Of a weight [n,k].
OpCase transposed_copy_case(DType dtype, int64_t n, int64_t k);
OpCase f32_copy_case(DType dtype, int64_t n, int64_t k);
OpCase dense_copy_case(int64_t rows, int64_t columns, Layout layout);
// Of a view of [columns, rows].
OpCase dense_copy_of_transpose_case(int64_t rows, int64_t columns, Layout layout);
// dy [m,n] with W [n,k]; `dy_transposed`: dy is a view of [n,m].
OpCase outer_product_case(int64_t m, int64_t n, int64_t k, bool acc, bool dy_transposed, Layout layout);

struct MatMulShape {
  int64_t m, n, k;
  float scale = 1;
  bool transposed = false;    // b
  bool a_transposed = false;  // a is a view of [k,m]
  bool acc_is_state = false;  // as a gradient accumulator
};
OpCase matmul_case(const MatMulShape& shape, Layout layout);

// x [rows, from * columns] to [rows, to * columns].
struct MixShape {
  int64_t rows, to, from, columns;
  bool transposed = false, acc = false;
};
OpCase mix_blocks_case(const MixShape& shape, Layout layout);
OpCase mix_blocks_grad_case(const MixShape& shape, Layout layout);  // dw [to, from]

OpCase row_magnitude_case(int64_t rows, int64_t columns, bool acc, Layout layout);
OpCase row_magnitude_grad_case(int64_t rows, int64_t columns, bool acc, Layout layout);
OpCase adapted_row_norms_case(int64_t ranks, int64_t columns, Layout layout);
// With `chosen` > 0 of the places of `rows` rows.
OpCase dropout_case(int64_t rows, int64_t columns, bool acc, int64_t chosen, Layout layout);
OpCase cross_entropy_case(int64_t rows, int64_t vocabulary, bool acc, Layout layout);
OpCase cross_entropy_grad_case(int64_t rows, int64_t vocabulary, Layout layout);

}  // namespace patina
