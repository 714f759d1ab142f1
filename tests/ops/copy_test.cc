#include "ops/copy.h"

#include <gtest/gtest.h>

#include "ops/outer_product.h"
#include "ops/view.h"
#include "support/random_weight.h"

namespace patina {
namespace {

class CopyTest : public testing::Test {
 protected:
  ValueId weight(DType dtype, int64_t rows, int64_t columns) {
    stored_.push_back(random_weight(dtype, rows, columns, 1));
    return graph_.frozen("w", dense(stored_.back().data(), dtype, {rows, columns}));
  }
  Graph graph_;
  std::vector<std::vector<std::byte>> stored_;
};

TEST_F(CopyTest, TypesAndSizes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ValueId copy = transposed_copy(graph_, weight(dtype, 3, 5), "w");
    EXPECT_EQ(graph_.maximum_shape(copy), (Shape{5, 3}));
    EXPECT_EQ(graph_.value(copy).dtype, dtype);
    EXPECT_EQ(graph_.maximum_bytes(copy), bytes_of(dtype, 15));
  }
  const ValueId wide = f32_copy(graph_, weight(DType::kQ4_K, 3, 256), "w");
  EXPECT_EQ(graph_.maximum_shape(wide), (Shape{3, 256}));
  EXPECT_EQ(graph_.maximum_bytes(wide), 3 * 256 * 4);
  EXPECT_NE(graph_.print().find("BF16[5,3] = transposed_copy("), std::string::npos) << graph_.print();
}

TEST_F(CopyTest, RefusesWhatItCannotCopy) {
  EXPECT_THROW(transposed_copy(graph_, weight(DType::kQ8_0, 3, 32), "w"), InternalError);
  EXPECT_THROW(transposed_copy(graph_, transpose(graph_, weight(DType::kF32, 3, 5), "w"), "w"), InternalError);
  EXPECT_THROW(f32_copy(graph_, transpose(graph_, weight(DType::kBF16, 3, 5), "w"), "w"), InternalError);
  EXPECT_THROW(dense_copy(graph_, weight(DType::kBF16, 3, 5), "w"), InternalError);
  const ValueId dy = graph_.input("dy", DType::kF32, {2, 3});
  EXPECT_THROW(outer_product(graph_, dy, weight(DType::kBF16, 3, 5), kNoValue, "w"), InternalError);
  EXPECT_THROW(outer_product(graph_, dy, weight(DType::kF32, 5, 3), kNoValue, "w"), InternalError);
}

}  // namespace
}  // namespace patina
