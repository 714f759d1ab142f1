#include "ops/work.h"

#include <gtest/gtest.h>

#include "ops/attention_ref.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"

namespace patina {
namespace {

Tensor shaped(DType dtype, const Shape& shape) { return dense(nullptr, dtype, shape); }

struct Sequences {
  std::vector<int32_t> q_offsets = {0, 5, 5, 8}, kv_offsets = {0, 5, 5, 15}, first = {0, 0, 7};

  std::vector<Tensor> inputs() {
    std::vector<Tensor> in(6);
    for (size_t i = 0; i < 3; ++i) in[i] = shaped(DType::kF32, {8, 16});
    for (auto [index, ints] : {std::pair{3, &q_offsets}, {4, &kv_offsets}, {5, &first}})
      in[static_cast<size_t>(index)] = dense(ints->data(), DType::kI32, {static_cast<int64_t>(ints->size())});
    return in;
  }
};

TEST(Work, PairsAreThoseThatTheMaskShows) {
  Sequences sequences;
  for (const auto mask : {AttentionSpec::Mask::kNone, AttentionSpec::Mask::kCausal, AttentionSpec::Mask::kWindow}) {
    AttentionSpec spec{4, 2, 4, mask, 2, 0.5f};
    double expected = 0;
    for (size_t b = 0; b < 3; ++b)
      for (int64_t i = 0; i < sequences.q_offsets[b + 1] - sequences.q_offsets[b]; ++i)
        for (int64_t key = 0; key < sequences.kv_offsets[b + 1] - sequences.kv_offsets[b]; ++key)
          expected += reference::attention_sees(spec, sequences.first[b] + i, key) ? 1 : 0;
    EXPECT_EQ(visible_pairs(Attention(spec), sequences.inputs()), expected);
    EXPECT_EQ(visible_pairs(AttentionGrad(spec), sequences.inputs()), expected);
    EXPECT_GT(expected, 20);
  }
}

TEST(Work, OperationsOfProducts) {
  const Tensor x = shaped(DType::kF32, {3, 64}), weight = shaped(DType::kQ8_0, {5, 64}), absent,
               y = shaped(DType::kF32, {3, 5});
  const Work forward = work_of(FrozenLinear(FrozenLinear::Direction::kForward, false), std::vector{x, weight, absent},
                               std::vector{y}, 0);
  EXPECT_EQ(forward.operations, 2 * 3 * 5 * 64);
  EXPECT_EQ(forward.bytes, 4 * 3 * 64 + 5 * 2 * 34 + 4 * 3 * 5);
  const Work backward = work_of(FrozenLinear(FrozenLinear::Direction::kBackward, false), std::vector{y, weight, absent},
                                std::vector{x}, 0);
  EXPECT_EQ(backward.operations, forward.operations);

  const Tensor labels = shaped(DType::kI32, {3}), loss = shaped(DType::kF32, {1});
  EXPECT_EQ(work_of(HeadLoss(false), std::vector{x, weight, labels}, std::vector{loss}, 0).operations, 2 * 3 * 5 * 64);
  EXPECT_EQ(work_of(HeadLoss(true), std::vector{x, weight, labels}, std::vector{loss, x}, 0).operations,
            4 * 3 * 5 * 64);
}

TEST(Work, TablesAreReadByRows) {
  const Tensor tokens = shaped(DType::kI32, {3}), table = shaped(DType::kQ8_0, {1000, 64}),
               y = shaped(DType::kF32, {3, 64});
  const Work work = work_of(Embedding(), std::vector{tokens, table}, std::vector{y}, 0);
  EXPECT_EQ(work.operations, 0);
  EXPECT_EQ(work.bytes, 4 * 3 + 3 * 2 * 34 + 4 * 3 * 64);
  // Ops without a row in the table read and write everything once.
  EXPECT_EQ(work_of(Add(), std::vector{y, y}, std::vector{y}, 0).bytes, 3 * 4 * 3 * 64);
}

}  // namespace
}  // namespace patina
