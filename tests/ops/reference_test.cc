// References against numbers worked out by hand: the specification of everything else must itself be right.
#include "ops/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "ops/outer_product.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace patina {
namespace {

RefTensor<double> numbers(std::vector<double>& data, const Shape& shape) {
  RefTensor<double> tensor;
  tensor.data = data.data();
  tensor.shape = shape;
  tensor.strides = contiguous_strides(shape);
  return tensor;
}

RefTensor<double> indices(const std::vector<int32_t>& data) {
  RefTensor<double> tensor;
  tensor.ints = data.data();
  tensor.shape = {static_cast<int64_t>(data.size())};
  tensor.strides = {1};
  return tensor;
}

void run(const Op& op, std::vector<RefTensor<double>> in, std::vector<RefTensor<double>> out) {
  reference_kernel<double>(op.name())(op, in, out);
}

TEST(Reference, FrozenLinearBothWays) {
  std::vector<double> x{1, 2}, w{1, 10, 100, 1000, 3, 5}, acc{1, 1, 1}, y(3), dx(2);
  run(FrozenLinear(FrozenLinear::Direction::kForward, false),
      {numbers(x, {1, 2}), numbers(w, {3, 2}), numbers(acc, {1, 3})}, {numbers(y, {1, 3})});
  EXPECT_EQ(y, (std::vector<double>{22, 2101, 14}));
  std::vector<double> dy{1, 2, 3};
  run(FrozenLinear(FrozenLinear::Direction::kBackward, false), {numbers(dy, {1, 3}), numbers(w, {3, 2}), {}},
      {numbers(dx, {1, 2})});
  EXPECT_EQ(dx, (std::vector<double>{210, 2025}));
}

TEST(Reference, OuterProductMeetsTheFrozenProduct) {
  std::vector<double> dy{1, 2, 3}, w{1, 10, 100, 1000, 3, 5}, acc{1, -1}, dx(2);
  run(OuterProduct(), {numbers(dy, {1, 3}), numbers(w, {3, 2}), {}}, {numbers(dx, {1, 2})});
  EXPECT_EQ(dx, (std::vector<double>{210, 2025}));
  run(OuterProduct(), {numbers(dy, {1, 3}), numbers(w, {3, 2}), numbers(acc, {1, 2})}, {numbers(dx, {1, 2})});
  EXPECT_EQ(dx, (std::vector<double>{211, 2024}));
}

TEST(Reference, Copies) {
  std::vector<double> w{1, 2, 3, 4, 5, 6}, y(6);
  run(TransposedCopy(), {numbers(w, {2, 3})}, {numbers(y, {3, 2})});
  EXPECT_EQ(y, (std::vector<double>{1, 4, 2, 5, 3, 6}));
  RefTensor<double> turned = numbers(w, {3, 2});
  turned.strides = {1, 3};
  run(DenseCopy(), {turned}, {numbers(y, {3, 2})});
  EXPECT_EQ(y, (std::vector<double>{1, 4, 2, 5, 3, 6}));
  run(F32Copy(), {numbers(w, {2, 3})}, {numbers(y, {2, 3})});
  EXPECT_EQ(y, w);
}

TEST(Reference, MatMul) {
  std::vector<double> a{1, 2}, b{1, 2, 3, 4}, y(2);
  run(MatMul(2, false), {numbers(a, {1, 2}), numbers(b, {2, 2}), {}}, {numbers(y, {1, 2})});
  EXPECT_EQ(y, (std::vector<double>{14, 20}));
  run(MatMul(2, true), {numbers(a, {1, 2}), numbers(b, {2, 2}), {}}, {numbers(y, {1, 2})});
  EXPECT_EQ(y, (std::vector<double>{10, 22}));
}

TEST(Reference, RmsNorm) {
  std::vector<double> x{3, 4}, w{1, 2}, y(2), rstd(1);
  run(RmsNorm(0), {numbers(x, {1, 2}), numbers(w, {2})}, {numbers(y, {1, 2}), numbers(rstd, {1})});
  EXPECT_DOUBLE_EQ(rstd[0], 1 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(y[0], 3 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(y[1], 8 / std::sqrt(12.5));
}

TEST(Reference, RopeTurnsHalvesAgainstEachOther) {
  std::vector<double> x{1, 2, 3, 4, 9}, table{1, 1, 0, 0, 0, 1, 1, 0}, y(5);  // position 1: a quarter turn and none
  const std::vector<int32_t> positions{1};
  run(Rope(5, false), {numbers(x, {1, 5}), indices(positions), numbers(table, {2, 4})}, {numbers(y, {1, 5})});
  EXPECT_EQ(y, (std::vector<double>{-3, 2, 1, 4, 9}));
  run(Rope(5, true), {numbers(y, {1, 5}), indices(positions), numbers(table, {2, 4})}, {numbers(y, {1, 5})});
  EXPECT_EQ(y, x);
}

TEST(Reference, SwiGlu) {
  std::vector<double> gate{0, std::log(3.0)}, up{5, 2}, y(2);
  run(SwiGlu(), {numbers(gate, {1, 2}), numbers(up, {1, 2})}, {numbers(y, {1, 2})});
  EXPECT_EQ(y[0], 0);
  EXPECT_DOUBLE_EQ(y[1], std::log(3.0) * 0.75 * 2);
}

TEST(Reference, HeadLossOfEqualLogits) {
  std::vector<double> h{0, 0}, w{1, 2, 3, 4, 5, 9}, loss(1), dh(2);
  const std::vector<int32_t> labels{2};
  run(HeadLoss(true), {numbers(h, {1, 2}), numbers(w, {3, 2}), indices(labels)},
      {numbers(loss, {1}), numbers(dh, {1, 2})});
  EXPECT_DOUBLE_EQ(loss[0], std::log(3.0));
  EXPECT_DOUBLE_EQ(dh[0], 3 - 5);
  EXPECT_DOUBLE_EQ(dh[1], 5 - 9);
}

TEST(Reference, IndicesOutOfRangeAreNeverFollowed) {
  std::vector<double> x{1, 2}, y(1);
  for (const int32_t bad : {-1, 2}) {
    const std::vector<int32_t> rows{bad};
    EXPECT_THROW(run(GatherRows(), {numbers(x, {2, 1}), indices(rows)}, {numbers(y, {1, 1})}), InternalError);
  }
}

TEST(Reference, UnknownOp) { EXPECT_THROW(reference_kernel<float>("no such op"), InternalError); }

}  // namespace
}  // namespace patina
