#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <vector>

namespace patina {
namespace {

TEST(Shape, Basics) {
  const Shape shape{4, 576};
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape[1], 576);
  EXPECT_EQ(shape.elements(), 4 * 576);
  EXPECT_EQ(shape.str(), "[4, 576]");
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{3, 0, 5}).elements(), 0);
  EXPECT_EQ(shape, Shape(std::vector<int64_t>{4, 576}));
  EXPECT_FALSE(shape == (Shape{4, 577}));
  EXPECT_FALSE(shape == (Shape{4, 576, 1}));
}

TEST(Shape, RefusesWhatDoesNotFit) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
  EXPECT_THROW((Shape{2, -1}).elements(), InternalError);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 31}).elements(), InternalError);
  EXPECT_THROW(contiguous_strides({2, int64_t{1} << 32, int64_t{1} << 31}), InternalError);
}

TEST(Tensor, DenseStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 5}), (Shape{15, 5, 1}));
  std::vector<float> numbers(30);
  Tensor tensor = dense(numbers.data(), DType::kF32, {2, 3, 5});
  EXPECT_TRUE(tensor.present());
  EXPECT_TRUE(tensor.contiguous());
  EXPECT_EQ(tensor.f32(), numbers.data());
  EXPECT_THROW(tensor.i32(), InternalError);
  tensor.strides[1] = 6;
  EXPECT_FALSE(tensor.contiguous());
  EXPECT_FALSE(Tensor().present());
}

TEST(Tensor, RowsOfBlocks) {
  std::vector<std::byte> bytes(3 * 36);
  Tensor tensor = dense(bytes.data(), DType::kQ4_0, {3, 64});
  EXPECT_EQ(tensor.row(2), bytes.data() + 72);
  const std::vector<int32_t> map = {2, 0, 1};
  tensor.row_map = map.data();
  EXPECT_EQ(tensor.row(0), bytes.data() + 72);
  EXPECT_EQ(tensor.row(1), bytes.data());
  EXPECT_THROW(dense(bytes.data(), DType::kQ4_0, {3, 48}), InternalError);
  EXPECT_THROW(dense(bytes.data(), DType::kQ4_0, {96}), InternalError);
}

}  // namespace
}  // namespace patina
