// Gradient rules against complex steps, and adjoint identities of linear ops.
#include <gtest/gtest.h>

#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "support/cases.h"
#include "support/concat.h"
#include "support/random_weight.h"

namespace patina {
namespace {

using Direction = FrozenLinear::Direction;

constexpr Layout kLayouts[] = {Layout::kStrided, Layout::kComputed};
constexpr int64_t kSmallSizes[] = {1, 3, 7, 17};

template <typename Make>
void sweep(Make make) {
  for (const Layout layout : kLayouts)
    for (const int64_t size : kSmallSizes) {
      EXPECT_TRUE(check_gradient(make(size, 5, layout)));
      EXPECT_TRUE(check_gradient(make(3, size, layout)));
    }
}

TEST(Gradients, Add) { sweep(add_case); }
TEST(Gradients, SquaredError) { sweep(squared_error_case); }

TEST(Gradients, Modulate) {
  for (const bool shift : {false, true})
    for (const bool acc : {false, true})
      sweep([&](int64_t rows, int64_t columns, Layout layout) {
        return modulate_case(rows, columns, shift, acc, layout);
      });
}

TEST(Gradients, SwiGlu) { sweep(swiglu_case); }

// Not of single values: their norm is their sign, whose gradient is all cancellation.
TEST(Gradients, RmsNorm) {
  for (const Layout layout : kLayouts)
    for (const int64_t size : kSmallSizes) {
      EXPECT_TRUE(check_gradient(rms_norm_case(size, 5, layout)));
      EXPECT_TRUE(check_gradient(rms_norm_case(3, size + 2, layout)));
    }
}

TEST(Gradients, GatherRows) {
  sweep([](int64_t rows, int64_t columns, Layout layout) {
    return gather_rows_case(rows, (rows + 1) / 2, columns, layout);
  });
}

TEST(Gradients, Rope) {
  for (const Layout layout : kLayouts)
    for (const bool inverse : {false, true}) {
      EXPECT_TRUE(check_gradient(rope_case(5, 2, 6, 6, inverse, layout)));
      EXPECT_TRUE(check_gradient(rope_case(3, 2, 7, 4, inverse, layout)));
    }
}

TEST(Gradients, FrozenLinear) {
  for (const Layout layout : kLayouts)
    for (const bool acc : {false, true})
      for (const int64_t size : kSmallSizes) {
        EXPECT_TRUE(
            check_gradient(frozen_linear_case(Direction::kForward, {.m = size, .n = 5, .k = 3, .acc = acc}, layout)));
        EXPECT_TRUE(check_gradient(frozen_linear_case(
            Direction::kForward, {.m = 3, .n = size, .k = 7, .dtype = DType::kBF16, .row_map = true, .acc = acc},
            layout)));
        EXPECT_TRUE(
            check_gradient(frozen_linear_case(Direction::kBackward, {.m = size, .n = 5, .k = 3, .acc = acc}, layout)));
      }
}

TEST(Gradients, MatMul) {
  for (const Layout layout : kLayouts)
    for (const bool transposed : {false, true})
      for (const int64_t size : kSmallSizes) {
        EXPECT_TRUE(
            check_gradient(matmul_case({.m = size, .n = 5, .k = 3, .scale = 0.7f, .transposed = transposed}, layout)));
        EXPECT_TRUE(
            check_gradient(matmul_case({.m = 3, .n = size, .k = 7, .scale = -2, .transposed = transposed}, layout)));
        EXPECT_TRUE(check_gradient(matmul_case({.m = 3, .n = 5, .k = size, .transposed = transposed}, layout)));
      }
}

TEST(Gradients, MixBlocks) {
  for (const Layout layout : kLayouts)
    for (const bool transposed : {false, true})
      for (const bool acc : {false, true}) {
        EXPECT_TRUE(check_gradient(mix_blocks_case({5, 3, 2, 4, transposed, acc}, layout)));
        EXPECT_TRUE(check_gradient(mix_blocks_case({3, 1, 4, 7, transposed, acc}, layout)));
      }
}

TEST(Gradients, RowMagnitude) {
  for (const bool acc : {false, true})
    sweep([&](int64_t rows, int64_t columns, Layout layout) { return row_magnitude_case(rows, columns, acc, layout); });
}

TEST(Gradients, Dropout) {
  for (const Layout layout : kLayouts)
    for (const int64_t chosen : {0, 3}) EXPECT_TRUE(check_gradient(dropout_case(7, 11, false, chosen, layout)));
}

TEST(Gradients, CrossEntropy) {
  for (const Layout layout : kLayouts)
    for (const bool acc : {false, true}) EXPECT_TRUE(check_gradient(cross_entropy_case(5, 9, acc, layout)));
}

TEST(Gradients, DenseCopy) {
  sweep(dense_copy_case);
  for (const Layout layout : kLayouts) EXPECT_TRUE(check_gradient(dense_copy_of_transpose_case(3, 5, layout)));
}

// The gradients of a transpose and of a slice reach sums, reshapes and kernels that read along dense columns.
TEST(Gradients, ThroughViews) {
  EXPECT_TRUE(check_gradient({"transpose, reshape, add", [](CaseBuilder& b) {
                                const ValueId x = b.values({3, 4});
                                const ValueId turned = transpose(b.graph, reshape(b.graph, x, {4, 3}, "x"), "x");
                                add(b.graph, x, dense_copy(b.graph, turned, "x"), "y");
                                return b.graph.nodes().back().outputs;
                              }}));
  EXPECT_TRUE(check_gradient({"transpose of swiglu", [](CaseBuilder& b) {
                                const ValueId x = b.values({3, 4});
                                dense_copy(b.graph, transpose(b.graph, swiglu(b.graph, x, x, "x"), "x"), "y");
                                return b.graph.nodes().back().outputs;
                              }}));
  EXPECT_TRUE(check_gradient({"a square and its transpose", [](CaseBuilder& b) {
                                const ValueId x = b.values({3, 3});
                                add(b.graph, x, dense_copy(b.graph, transpose(b.graph, x, "x"), "x"), "y");
                                return b.graph.nodes().back().outputs;
                              }}));
  EXPECT_TRUE(check_gradient(
      {"reshape, concat", [](CaseBuilder& b) {
         const ValueId x = b.values({2, 6});
         const ValueId left = reshape(b.graph, x, {4, 3}, "x");
         concat_columns(b.graph, left, b.constant({4, 2}, [](int64_t i) { return 0.1 * static_cast<double>(i); }), "y");
         return b.graph.nodes().back().outputs;
       }}));
}

TEST(Gradients, HeadLoss) {
  for (const int64_t size : kSmallSizes) {
    EXPECT_TRUE(check_gradient(head_loss_case(DType::kF32, size, 5, 11)));
    EXPECT_TRUE(check_gradient(head_loss_case(DType::kBF16, 3, size, 7)));
    EXPECT_TRUE(check_gradient(head_loss_case(DType::kF32, 3, 5, size)));
  }
}

TEST(Adjoint, FrozenLinear) {
  for (const Layout layout : kLayouts)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K})
      for (const int64_t size : kOddSizes) {
        EXPECT_TRUE(check_adjoint(frozen_linear_case(
            Direction::kForward, {.m = size, .n = 17, .k = 768, .dtype = dtype, .row_map = true}, layout)));
        EXPECT_TRUE(check_adjoint(
            frozen_linear_case(Direction::kForward, {.m = 17, .n = size, .k = 256, .dtype = dtype}, layout)));
      }
}

TEST(Adjoint, FrozenLinearOfEveryType) {
  std::vector<DType> types = block_types();
  types.insert(types.end(), {DType::kF32, DType::kF16, DType::kBF16});
  for (const DType dtype : types)
    EXPECT_TRUE(check_adjoint(frozen_linear_case(
        Direction::kForward, {.m = 17, .n = 37, .k = 768, .dtype = dtype, .row_map = true}, Layout::kStrided)));
}

TEST(Adjoint, RopeAndGatherRows) {
  for (const Layout layout : kLayouts)
    for (const int64_t size : kOddSizes) {
      EXPECT_TRUE(check_adjoint(rope_case(size, 3, 34, 30, false, layout)));
      EXPECT_TRUE(check_adjoint(gather_rows_case(size, (size + 1) / 2, 17, layout)));
    }
}

}  // namespace
}  // namespace patina
