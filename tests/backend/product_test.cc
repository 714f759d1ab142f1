// The blocked product itself: every element is one chain of fused multiply-adds in order of k, whatever the blocking,
// the layout of the operands, the threads and the instruction set, so the plainest loop gives the same bits.
#include "backend/cpu/product.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/philox.h"
#include "quant/decode.h"
#include "support/random_weight.h"
#include "support/targets.h"

namespace patina::cpu {
namespace {

constexpr float kCanary = 12345.0f;

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  const RandomStream random(seed, RandomUse::kTest, 2);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

enum class Left { kRows, kPaddedRows, kConflictingRows, kColumns, kStrided };
enum class Right { kColumnsDense, kRowsDense, kStrided };
enum class Begin { kZeros, kInPlace, kElsewhere };  // what C is added to

struct Case {
  int64_t m, n, k;
  Left left = Left::kRows;
  float scale = 1.0f;
  Begin begin = Begin::kZeros;
  Right right = Right::kColumnsDense;
  DType dtype = DType::kF32;  // other than F32: a frozen weight
  bool transposed = false;    // of a frozen weight: forward
};

// 64-byte aligned scratch of exactly the size asked for, so that the address sanitizer guards its end.
std::span<std::byte> exact_scratch(std::vector<std::byte>& memory, int64_t bytes) {
  memory.assign(static_cast<size_t>(bytes) + 63, std::byte{0xff});
  void* start = memory.data();
  size_t room = memory.size();
  return {static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), start, room)), static_cast<size_t>(bytes)};
}

void check(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.m << "x" << c.n << "x" << c.k << " left " << static_cast<int>(c.left)
                                    << " right " << static_cast<int>(c.right) << " " << name(c.dtype)
                                    << (c.transposed ? " forward" : ""));
  LeftOperand a{nullptr, c.k, 1};
  if (c.left == Left::kPaddedRows) a.row_stride = c.k + 3;
  if (c.left == Left::kConflictingRows) a.row_stride = (c.k + 1023) / 1024 * 1024;
  if (c.left == Left::kColumns) a = {nullptr, 1, c.m + 5};
  if (c.left == Left::kStrided) a = {nullptr, 2 * c.k + 1, 2};
  const std::vector<float> a_values = random_floats(c.m * a.row_stride + c.k * a.column_stride, 1);
  a.data = a_values.data();

  // B as plain rows [k][n] for the reference.
  std::vector<float> b_values, plain(static_cast<size_t>(c.k * c.n));
  std::vector<std::byte> stored;
  Tensor weight;
  RightOperand b;
  if (c.dtype == DType::kF32) {
    const int64_t row = c.right == Right::kColumnsDense ? c.n + 1 : c.right == Right::kRowsDense ? 1 : 3;
    const int64_t column = c.right == Right::kColumnsDense ? 1 : c.right == Right::kRowsDense ? c.k + 2 : 3 * c.k + 1;
    b_values = random_floats(c.k * row + c.n * column, 2);
    b = RightOperand::numbers(b_values.data(), row, column, c.scale);
    for (int64_t k = 0; k < c.k; ++k)
      for (int64_t n = 0; n < c.n; ++n)
        plain[static_cast<size_t>(k * c.n + n)] = b_values[static_cast<size_t>(k * row + n * column)];
  } else {
    const int64_t rows = c.transposed ? c.n : c.k, columns = c.transposed ? c.k : c.n;
    stored = random_weight(c.dtype, rows + 1, columns, 3);
    weight = dense(stored.data(), c.dtype, Shape{rows + 1, columns});
    b = RightOperand::frozen(weight, c.transposed, 1);
    std::vector<float> decoded(static_cast<size_t>(columns));
    for (int64_t r = 0; r < rows; ++r) {
      decode_row(c.dtype)(weight.row(r + 1), 0, columns, decoded.data());
      for (int64_t i = 0; i < columns; ++i)
        plain[static_cast<size_t>(c.transposed ? i * c.n + r : r * c.n + i)] = decoded[static_cast<size_t>(i)];
    }
  }

  const int64_t c_stride = c.n + 3;
  std::vector<float> before(static_cast<size_t>(c.m * c_stride), kCanary);
  const std::vector<float> starts = random_floats(c.m * c.n, 4);
  std::vector<float> expected = before;
  for (int64_t m = 0; m < c.m; ++m)
    for (int64_t n = 0; n < c.n; ++n) {
      const size_t at = static_cast<size_t>(m * c_stride + n);
      before[at] = starts[static_cast<size_t>(m * c.n + n)];
      float sum = c.begin == Begin::kZeros ? 0.0f : before[at];
      for (int64_t k = 0; k < c.k; ++k)
        sum = std::fma(a_values[static_cast<size_t>(m * a.row_stride + k * a.column_stride)],
                       c.scale * plain[static_cast<size_t>(k * c.n + n)], sum);
      expected[at] = sum;
    }

  for_each_target([&] {
    if (cpu_isa() == "portable") return;  // rounds twice; tests/backend/kernels_test.cc has its bounds
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      std::vector<std::byte> memory;
      std::vector<float> got = before;
      Addend acc;
      if (c.begin == Begin::kInPlace) acc = {got.data(), c_stride};
      if (c.begin == Begin::kElsewhere) {
        acc = {starts.data(), c.n};
        for (int64_t m = 0; m < c.m; ++m) std::fill_n(got.begin() + m * c_stride, c.n, NAN);
      }
      product(c.m, c.n, c.k, a, b, acc, got.data(), c_stride, pool,
              exact_scratch(memory, product_scratch_bytes(c.n, c.k, threads)));
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
            << "element " << i / static_cast<size_t>(c_stride) << "," << i % static_cast<size_t>(c_stride)
            << " threads " << threads << ": " << got[i] << ", expected " << expected[i];
    }
  });
}

TEST(Product, OneChainForEveryLayout) {
  for (const Left left : {Left::kRows, Left::kPaddedRows, Left::kConflictingRows, Left::kColumns, Left::kStrided})
    for (const Right right : {Right::kColumnsDense, Right::kRowsDense, Right::kStrided})
      for (const Begin begin : {Begin::kZeros, Begin::kInPlace, Begin::kElsewhere}) {
        check({.m = 37, .n = 45, .k = 29, .left = left, .begin = begin, .right = right});
        check({.m = 130, .n = 33, .k = 1030, .left = left, .scale = 0.3f, .begin = begin, .right = right});
      }
}

TEST(Product, OneChainForEverySize) {
  for (const int64_t m : {1, 2, 4, 6, 11, 12, 13, 16, 25, 97, 193})
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 48, 257, 300}) {
      check({.m = m, .n = n, .k = 40});
      check({.m = m, .n = n, .k = 40, .left = Left::kColumns, .begin = Begin::kInPlace});
    }
  for (const int64_t k : {1, 511, 512, 513, 1025}) check({.m = 25, .n = 70, .k = k});
}

TEST(Product, OneChainForFrozenWeights) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    check({.m = 40, .n = 90, .k = 768, .dtype = dtype, .transposed = true});
    check({.m = 40, .n = 768, .k = 90, .begin = Begin::kInPlace, .dtype = dtype});
  }
}

// As wide as a feed-forward layer: chunks must be whole blocks of 256 and still cover all columns.
TEST(Product, WideColumnsInWholeBlocks) {
  check({.m = 13, .n = 9728, .k = 20, .dtype = DType::kQ4_K});
  check({.m = 13, .n = 9728, .k = 256, .dtype = DType::kQ4_K, .transposed = true});
}

TEST(Product, NothingToAdd) {
  check({.m = 5, .n = 7, .k = 0});
  check({.m = 5, .n = 7, .k = 0, .begin = Begin::kInPlace});
  check({.m = 5, .n = 7, .k = 0, .begin = Begin::kElsewhere});
  check({.m = 0, .n = 7, .k = 3});
}

// Gradients of low-rank factors: few rows, or few columns, of A that lies as columns.
TEST(Product, OneChainWhereOneSideIsThin) {
  for (const Begin begin : {Begin::kZeros, Begin::kInPlace, Begin::kElsewhere})
    for (const int64_t k : {271, 272, 530, 1100})
      for (const int64_t few : {1, 16, 31, 32, 33})
        for (const int64_t many : {40, 300}) {
          check({.m = few, .n = many, .k = k, .left = Left::kColumns, .begin = begin});
          check({.m = many, .n = few, .k = k, .left = Left::kColumns, .scale = 0.3f, .begin = begin});
        }
}

// Two terms give the bits of two calls.
TEST(Product, TwoTermsAreTwoCalls) {
  const std::vector<float> x = random_floats(50 * 600, 1), h = random_floats(50 * 5, 2),
                           factor = random_floats(5 * 300, 3);
  const std::vector<std::byte> stored = random_weight(DType::kQ8_0, 300, 600 / 32 * 32, 4);
  const Tensor weight = dense(const_cast<std::byte*>(stored.data()), DType::kQ8_0, Shape{300, 576});
  const ProductTerm frozen{576, {x.data(), 600, 1}, RightOperand::frozen(weight, true)};
  const ProductTerm thin{5, {h.data(), 5, 1}, RightOperand::numbers(factor.data(), 300, 1, 0.7f)};
  const ProductTerm none{0, {nullptr, 0, 1}, RightOperand::numbers(nullptr, 1, 1)};
  for_each_target([&] {
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<std::byte> memory;
      const std::span<std::byte> scratch = exact_scratch(memory, product_scratch_bytes(300, 576, threads));
      for (const bool swap : {false, true}) {
        std::vector<float> one(50 * 300, 2.0f), two = one;
        const ProductTerm terms[] = {swap ? thin : frozen, swap ? frozen : thin};
        product(50, 300, terms, {one.data(), 300}, one.data(), 300, pool, scratch);
        for (const ProductTerm& term : terms)
          product(50, 300, {&term, 1}, {two.data(), 300}, two.data(), 300, pool, scratch);
        EXPECT_EQ(one, two);
        const ProductTerm with_none[] = {none, terms[1]};
        std::vector<float> only(50 * 300, kCanary), expected = only;
        product(50, 300, with_none, {}, only.data(), 300, pool, scratch);
        product(50, 300, {&terms[1], 1}, {}, expected.data(), 300, pool, scratch);
        EXPECT_EQ(only, expected) << "a term without depth does not count as the first";
      }
    }
  });
}

TEST(Product, ScratchOfOneThreadIsUnderOneMebibyte) {
  EXPECT_LT(product_scratch_bytes(100000, 100000, 1), 1 << 20);
  EXPECT_EQ(product_scratch_bytes(100000, 100000, 7), 7 * product_scratch_bytes(100000, 100000, 1));
}

}  // namespace
}  // namespace patina::cpu
