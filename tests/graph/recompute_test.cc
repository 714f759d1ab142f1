#include "graph/recompute.h"

#include <gtest/gtest.h>

#include <array>

#include "graph/differentiate.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"

namespace patina {
namespace {

constexpr int64_t kWidth = 8;

// Three layers h = h + swiglu(h W^T, h A^T), A trainable. The gradient of swiglu reads gate and up; nothing reads
// swiglu's own output again.
class RecomputeTest : public testing::Test {
 protected:
  RecomputeTest() {
    const Extent tokens = graph_.symbol("T", 10);
    const ValueId w = graph_.frozen("w", dense(numbers_.data(), DType::kF32, {kWidth, kWidth}));
    ValueId h = graph_.input("x", DType::kF32, {tokens, kWidth});
    std::map<ValueId, ValueId> gradients;
    for (std::vector<float>& sum : sums_) {
      const int begin = static_cast<int>(graph_.nodes().size());
      const ValueId a = graph_.trainable("a", {kWidth, kWidth}, numbers_.data());
      gradients[a] = graph_.state("da", DType::kF32, {kWidth, kWidth}, sum.data());
      const ValueId gate = frozen_linear(graph_, h, w, kNoValue, "gate");
      const ValueId up = matmul(graph_, h, a, kNoValue, 1.0f, true, "up");
      h = add(graph_, h, swiglu(graph_, gate, up, "ffn"), "h");
      layers_.push_back({begin, static_cast<int>(graph_.nodes().size())});
    }
    loss_ = head_loss(graph_, h, w, graph_.input("labels", DType::kI32, {tokens}), true, "head");
    graph_.mark_output(loss_);
    forward_ = static_cast<int>(graph_.nodes().size());
    differentiate(graph_, loss_, gradients);
  }

  std::vector<int> positions(std::string_view label) const {
    std::vector<int> found;
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (graph_.nodes()[i].label == label && graph_.nodes()[i].op->name() != "swiglu_grad" &&
          graph_.nodes()[i].op->attributes().find("backward") == std::string::npos)
        found.push_back(static_cast<int>(i));
    return found;
  }

  Graph graph_;
  std::vector<float> numbers_ = std::vector<float>(kWidth * kWidth, 0.1f);
  std::array<std::vector<float>, 3> sums_ = {numbers_, numbers_, numbers_};
  std::vector<NodeRange> layers_;
  ValueId loss_ = kNoValue;
  int forward_ = 0;
};

TEST_F(RecomputeTest, RepeatsWhatBackwardReadsAndNothingElse) {
  const size_t before = graph_.nodes().size();
  const std::vector<NodeRange> segments = recompute_segments(layers_, 3);
  ASSERT_EQ(segments.size(), 2u) << "the last layer is not computed again";
  EXPECT_EQ(recompute(graph_, forward_, segments), 4) << "gate and up of two layers";
  EXPECT_EQ(graph_.nodes().size(), before + 4);
  EXPECT_EQ(positions("gate").size(), 5u);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    for (const ValueId output : node.outputs) EXPECT_EQ(graph_.value(output).producer, static_cast<int>(i));
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      const int producer = graph_.value(input).producer;
      EXPECT_LT(producer, static_cast<int>(i)) << node.label << " reads what is made later";
      const bool kept = node.op->name() == "head_loss" || producer >= forward_ || producer < 0 ||
                        graph_.nodes()[static_cast<size_t>(producer)].op->name() == "add" ||
                        graph_.nodes()[static_cast<size_t>(producer)].op->name() == "head_loss" ||
                        producer >= layers_[2].begin;
      EXPECT_TRUE(kept || static_cast<int>(i) < forward_) << node.op->name() << " " << node.label;
    }
  }
  // Each layer is computed again right before its own backward: the upper one first.
  const std::vector<int> gates = positions("gate");
  EXPECT_LT(forward_, gates[3]);
  const Node& after_first = graph_.nodes()[static_cast<size_t>(gates[3] + 2)];
  EXPECT_EQ(after_first.op->name(), "swiglu_grad") << after_first.label;
}

TEST_F(RecomputeTest, OneSegmentChangesNothing) {
  const std::string before = graph_.print();
  EXPECT_TRUE(recompute_segments(layers_, 1).empty());
  EXPECT_EQ(recompute(graph_, forward_, recompute_segments(layers_, 1)), 0);
  EXPECT_EQ(graph_.print(), before);
}

TEST(RecomputeSegments, AreEvenAndLeaveOutTheLast) {
  std::vector<NodeRange> layers;
  for (int i = 0; i < 7; ++i) layers.push_back({10 * i, 10 * i + 10});
  const std::vector<NodeRange> two = recompute_segments(layers, 2), all = recompute_segments(layers, 100);
  ASSERT_EQ(two.size(), 1u);
  EXPECT_EQ(two[0].begin, 0);
  EXPECT_EQ(two[0].end, 30);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all.back().end, 60);
}

}  // namespace
}  // namespace patina
