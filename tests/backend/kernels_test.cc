// Every CPU kernel against its reference: odd shapes, all instruction sets, several thread counts.
#include <gtest/gtest.h>

#include "support/cases.h"
#include "support/random_weight.h"

namespace patina {
namespace {

using Direction = FrozenLinear::Direction;

constexpr Layout kLayouts[] = {Layout::kStrided, Layout::kComputed};

// Runs `make(rows, columns, layout)` over pairs of odd sizes, and without rows.
template <typename Make>
void sweep(Make make) {
  for (const Layout layout : kLayouts) {
    for (const int64_t size : kOddSizes) {
      EXPECT_TRUE(check_kernel(make(size, 17, layout)));
      EXPECT_TRUE(check_kernel(make(7, size, layout)));
    }
    EXPECT_TRUE(check_kernel(make(257, 255, layout)));
    EXPECT_TRUE(check_kernel(make(0, 7, layout)));
  }
}

TEST(Kernels, Add) { sweep(add_case); }
TEST(Kernels, ScaleBy) { sweep(scale_by_case); }
TEST(Kernels, Silu) { sweep(silu_case); }
TEST(Kernels, RepeatRow) { sweep(repeat_row_case); }
TEST(Kernels, SquaredError) { sweep(squared_error_case); }
TEST(Kernels, SquaredErrorGrad) { sweep(squared_error_grad_case); }

TEST(Kernels, Modulate) {
  for (const bool shift : {false, true})
    for (const bool acc : {false, true})
      sweep([&](int64_t rows, int64_t columns, Layout layout) {
        return modulate_case(rows, columns, shift, acc, layout);
      });
}

TEST(Kernels, SwiGlu) { sweep(swiglu_case); }
TEST(Kernels, SwiGluGrad) { sweep(swiglu_grad_case); }
TEST(Kernels, PadColumns) { sweep(pad_columns_case); }
TEST(Kernels, RmsNorm) { sweep(rms_norm_case); }

TEST(Kernels, RmsNormGrad) {
  for (const bool acc : {false, true})
    sweep([&](int64_t rows, int64_t columns, Layout layout) { return rms_norm_grad_case(rows, columns, acc, layout); });
}

TEST(Kernels, GatherAndScatterRows) {
  sweep([](int64_t rows, int64_t columns, Layout layout) {
    return gather_rows_case(rows, (rows + 1) / 2, columns, layout);
  });
  sweep([](int64_t rows, int64_t columns, Layout layout) {
    return scatter_rows_case(rows, (rows + 1) / 2, columns, layout);
  });
  EXPECT_TRUE(check_kernel(gather_rows_case(7, 0, 17, Layout::kStrided)));
  EXPECT_TRUE(check_kernel(scatter_rows_case(7, 0, 17, Layout::kStrided)));
}

TEST(Kernels, Rope) {
  for (const Layout layout : kLayouts)
    for (const bool inverse : {false, true}) {
      for (const int64_t rows : kOddSizes) EXPECT_TRUE(check_kernel(rope_case(rows, 3, 34, 34, inverse, layout)));
      EXPECT_TRUE(check_kernel(rope_case(7, 1, 2, 2, inverse, layout)));
      EXPECT_TRUE(check_kernel(rope_case(17, 2, 64, 64, inverse, layout)));
      EXPECT_TRUE(check_kernel(rope_case(17, 2, 23, 14, inverse, layout)));  // part of the head
    }
}

TEST(Kernels, MixBlocks) {
  for (const Layout layout : kLayouts)
    for (const bool acc : {false, true})
      for (const bool transposed : {false, true}) {
        for (const int64_t columns : {1, 7, 8, 17, 40})
          EXPECT_TRUE(check_kernel(mix_blocks_case({70, 4, 6, columns, transposed, acc}, layout)));
        EXPECT_TRUE(check_kernel(mix_blocks_case({5, 15, 1, 33, transposed, acc}, layout)));
        EXPECT_TRUE(check_kernel(mix_blocks_case({3, 1, 32, 64, transposed, acc}, layout)));
        EXPECT_TRUE(check_kernel(mix_blocks_case({0, 3, 2, 5, transposed, acc}, layout)));
      }
}

TEST(Kernels, MixBlocksGrad) {
  for (const Layout layout : kLayouts)
    for (const bool acc : {false, true}) {
      for (const int64_t columns : {1, 7, 8, 17, 40})
        EXPECT_TRUE(check_kernel(
            mix_blocks_grad_case({.rows = 150, .to = 4, .from = 6, .columns = columns, .acc = acc}, layout)));
      EXPECT_TRUE(
          check_kernel(mix_blocks_grad_case({.rows = 64, .to = 5, .from = 1, .columns = 33, .acc = acc}, layout)));
      EXPECT_TRUE(
          check_kernel(mix_blocks_grad_case({.rows = 1, .to = 1, .from = 9, .columns = 16, .acc = acc}, layout)));
      EXPECT_TRUE(
          check_kernel(mix_blocks_grad_case({.rows = 0, .to = 3, .from = 2, .columns = 5, .acc = acc}, layout)));
    }
}

TEST(Kernels, RowMagnitude) {
  for (const bool acc : {false, true}) {
    sweep([&](int64_t rows, int64_t columns, Layout layout) { return row_magnitude_case(rows, columns, acc, layout); });
    sweep([&](int64_t rows, int64_t columns, Layout layout) {
      return row_magnitude_grad_case(rows, columns, acc, layout);
    });
  }
}

TEST(Kernels, AdaptedRowNorms) {
  for (const Layout layout : kLayouts)
    for (const int64_t columns : kOddSizes)
      for (const int64_t ranks : {1, 7}) EXPECT_TRUE(check_kernel(adapted_row_norms_case(ranks, columns, layout)));
}

TEST(Kernels, Dropout) {
  for (const bool acc : {false, true}) {
    sweep([&](int64_t rows, int64_t columns, Layout layout) { return dropout_case(rows, columns, acc, 0, layout); });
    EXPECT_TRUE(check_kernel(dropout_case(17, 30, acc, 5, Layout::kStrided)));
  }
}

TEST(Kernels, CrossEntropy) {
  for (const Layout layout : kLayouts) {
    for (const int64_t vocabulary : {1, 7, 17, 255, 257, 2000})
      for (const int64_t rows : {0, 1, 7}) {
        for (const bool acc : {false, true})
          EXPECT_TRUE(check_kernel(cross_entropy_case(rows, vocabulary, acc, layout)));
        EXPECT_TRUE(check_kernel(cross_entropy_grad_case(rows, vocabulary, layout)));
      }
  }
}

TEST(Kernels, Embedding) {
  for (const int64_t tokens : kOddSizes) EXPECT_TRUE(check_kernel(embedding_case(DType::kBF16, tokens, 31, 17)));
  for (const DType dtype : {DType::kF32, DType::kF16}) EXPECT_TRUE(check_kernel(embedding_case(dtype, 7, 31, 512)));
  for (const DType dtype : block_types()) EXPECT_TRUE(check_kernel(embedding_case(dtype, 7, 31, 512)));
  EXPECT_TRUE(check_kernel(embedding_case(DType::kF32, 0, 31, 17)));
}

TEST(Kernels, CacheAppend) {
  EXPECT_TRUE(check_kernel(cache_append_case(257, 0, 255, 17)));
  EXPECT_TRUE(check_kernel(cache_append_case(257, 256, 1, 255)));
  EXPECT_TRUE(check_kernel(cache_append_case(17, 10, 7, 7)));
  EXPECT_TRUE(check_kernel(cache_append_case(17, 17, 0, 7)));
}

TEST(Kernels, FrozenLinear) {
  for (const Layout layout : kLayouts)
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (const int64_t m : kOddSizes)
        for (const bool acc : {false, true}) {
          EXPECT_TRUE(check_kernel(frozen_linear_case(direction, {.m = m, .n = 17, .k = 255, .acc = acc}, layout)));
          EXPECT_TRUE(check_kernel(frozen_linear_case(
              direction, {.m = 7, .n = m, .k = 17, .dtype = DType::kBF16, .row_map = true, .acc = acc}, layout)));
          EXPECT_TRUE(check_kernel(frozen_linear_case(direction, {.m = 17, .n = 7, .k = m, .acc = acc}, layout)));
        }
      EXPECT_TRUE(check_kernel(frozen_linear_case(direction, {.m = 0, .n = 17, .k = 7}, layout)));
      // Several passes of the contraction and several chunks of columns.
      EXPECT_TRUE(check_kernel(frozen_linear_case(direction, {.m = 17, .n = 701, .k = 1025, .acc = true}, layout)));
      std::vector<DType> types = block_types();
      types.push_back(DType::kF16);
      for (const DType dtype : types)
        EXPECT_TRUE(check_kernel(
            frozen_linear_case(direction, {.m = 17, .n = 257, .k = 768, .dtype = dtype, .row_map = true}, layout)));
    }
}

TEST(Kernels, FrozenLinearFewRows) {
  for (const Layout layout : kLayouts)
    for (const int64_t m : {0, 1, 5, 7, 8})
      for (const bool acc : {false, true}) {
        for (const int64_t k : kOddSizes)
          EXPECT_TRUE(check_kernel(frozen_linear_case(
              Direction::kForward, {.m = m, .n = 37, .k = k, .acc = acc, .few_rows = true}, layout)));
        EXPECT_TRUE(check_kernel(frozen_linear_case(
            Direction::kForward,
            {.m = m, .n = 257, .k = 1536, .dtype = DType::kQ4_K, .row_map = true, .acc = acc, .few_rows = true},
            layout)));
      }
  for (const DType dtype : block_types())
    EXPECT_TRUE(check_kernel(frozen_linear_case(
        Direction::kForward, {.m = 3, .n = 37, .k = 768, .dtype = dtype, .few_rows = true}, Layout::kStrided)));
}

TEST(Kernels, Copies) {
  sweep(dense_copy_case);
  for (const Layout layout : kLayouts)
    for (const int64_t size : kOddSizes) {
      EXPECT_TRUE(check_kernel(dense_copy_of_transpose_case(size, 17, layout)));
      EXPECT_TRUE(check_kernel(dense_copy_of_transpose_case(7, size, layout)));
    }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t size : kOddSizes) {
      EXPECT_TRUE(check_kernel(transposed_copy_case(dtype, size, 17)));
      EXPECT_TRUE(check_kernel(transposed_copy_case(dtype, 17, size)));
    }
    EXPECT_TRUE(check_kernel(transposed_copy_case(dtype, 257, 255)));
    EXPECT_TRUE(check_kernel(transposed_copy_case(dtype, 128, 384)));
  }
  for (const int64_t size : kOddSizes) EXPECT_TRUE(check_kernel(f32_copy_case(DType::kBF16, size, 17)));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                            DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
    EXPECT_TRUE(check_kernel(f32_copy_case(dtype, 17, 512)));
}

TEST(Kernels, OuterProduct) {
  for (const Layout layout : kLayouts)
    for (const bool acc : {false, true}) {
      for (const int64_t size : kOddSizes) {
        EXPECT_TRUE(check_kernel(outer_product_case(size, 17, 7, acc, false, layout)));
        EXPECT_TRUE(check_kernel(outer_product_case(17, size, 7, acc, false, layout)));
        EXPECT_TRUE(check_kernel(outer_product_case(7, 17, size, acc, false, layout)));
        EXPECT_TRUE(check_kernel(outer_product_case(size, 17, 33, acc, true, layout)));
      }
      EXPECT_TRUE(check_kernel(outer_product_case(0, 17, 7, acc, false, layout)));
    }
}

TEST(Kernels, MatMul) {
  for (const Layout layout : kLayouts)
    for (const bool transposed : {false, true}) {
      for (const int64_t size : kOddSizes) {
        EXPECT_TRUE(
            check_kernel(matmul_case({.m = size, .n = 7, .k = 17, .scale = 0.3f, .transposed = transposed}, layout)));
        EXPECT_TRUE(check_kernel(matmul_case({.m = 17, .n = size, .k = 7, .transposed = transposed}, layout)));
        EXPECT_TRUE(
            check_kernel(matmul_case({.m = 7, .n = 17, .k = size, .scale = -2, .transposed = transposed}, layout)));
      }
      EXPECT_TRUE(check_kernel(matmul_case({.m = 0, .n = 17, .k = 7, .transposed = transposed}, layout)));
    }
  // As in the gradient of an adapter's matrix: the sum runs over tokens, of which there may be none.
  for (const int64_t k : {0, 1, 17, 257})
    EXPECT_TRUE(check_kernel(matmul_case(
        {.m = 17, .n = 255, .k = k, .scale = 2, .a_transposed = true, .acc_is_state = true}, Layout::kStrided)));
}

TEST(Kernels, HeadLoss) {
  for (const int64_t size : kOddSizes) {
    EXPECT_TRUE(check_kernel(head_loss_case(DType::kF32, size, 17, 255)));
    EXPECT_TRUE(check_kernel(head_loss_case(DType::kBF16, 7, size, 17)));
    EXPECT_TRUE(check_kernel(head_loss_case(DType::kF32, 17, 7, size)));
  }
  EXPECT_TRUE(check_kernel(head_loss_case(DType::kF32, 17, 32, 1100)));  // several panels
  for (const DType dtype : block_types()) EXPECT_TRUE(check_kernel(head_loss_case(dtype, 7, 256, 1100)));
  EXPECT_TRUE(check_kernel(head_loss_case(DType::kF32, 17, 32, 1100, false)));
  EXPECT_TRUE(check_kernel(head_loss_case(DType::kF32, 0, 17, 255)));
}

}  // namespace
}  // namespace patina
