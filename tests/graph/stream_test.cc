#include "graph/stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "base/file.h"
#include "graph/executor.h"
#include "ops/embedding.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

constexpr int64_t kWidth = 256, kTensorBytes = kWidth * kWidth * 4, kPieceBytes = 2 << 20;

// A file of F32 matrices [rows,256], one after another behind a header, and a graph that reads them.
class StreamTest : public testing::Test {
 protected:
  static constexpr int64_t kHeaderBytes = 96;  // tensors do not begin at pages

  explicit StreamTest(std::vector<int64_t> rows = std::vector<int64_t>(6, kWidth)) {
    int64_t bytes = kHeaderBytes;
    for (const int64_t count : rows) bytes += count * kWidth * 4;
    file_ = MappedFile(directory_.write("weights", std::string(static_cast<size_t>(bytes), '\0')));
    int64_t at = kHeaderBytes;
    for (const int64_t count : rows) {
      void* const data = const_cast<std::byte*>(file_.bytes().data() + at);
      tensors_.push_back(dense(data, DType::kF32, {count, kWidth}));
      weights_.push_back(graph_.frozen("w" + std::to_string(weights_.size()), tensors_.back()));
      at += count * kWidth * 4;
    }
  }

  void use(int weight) { y_ = frozen_linear(graph_, y_, weights_[static_cast<size_t>(weight)], kNoValue, "linear"); }
  void uses(std::initializer_list<int> order) {
    for (const int weight : order) use(weight);
  }
  StreamPlan plan(int64_t budget_bytes) const { return plan_stream(graph_, file_.bytes(), budget_bytes); }

  // The weights of these pieces.
  std::set<int> weights_of(const StreamPlan& plan, const std::vector<int>& pieces) const {
    std::set<int> found;
    for (const int piece : pieces) found.insert(weight_of(plan, piece));
    return found;
  }
  int weight_of(const StreamPlan& plan, int piece) const {
    const std::byte* const last = plan.pieces[static_cast<size_t>(piece)].data();
    int weight = 0;
    while (weight + 1 < static_cast<int>(tensors_.size()) && tensors_[static_cast<size_t>(weight + 1)].data <= last)
      ++weight;
    return weight;
  }
  static std::vector<int> pieces_of(const std::vector<StreamPlan::Ask>& asks) {
    std::vector<int> pieces;
    for (const StreamPlan::Ask& ask : asks) pieces.push_back(ask.piece);
    return pieces;
  }

  // Goes through three runs and checks every promise of the plan but the order of asking.
  void expect_sound(const StreamPlan& plan, int64_t budget_bytes) {
    std::map<int, int64_t> resident;  // piece -> event of its release
    int64_t event = 0, most = 0;
    const auto ask = [&](const std::vector<StreamPlan::Ask>& list) {
      for (const StreamPlan::Ask& asked : list) {
        EXPECT_FALSE(resident.contains(asked.piece)) << "asked for twice";
        resident[asked.piece] = asked.positions == StreamPlan::kNever ? INT64_MAX : event + asked.positions;
      }
    };
    ask(plan.first);
    for (int run = 0; run < 3; ++run)
      for (const StreamPlan::Position& position : plan.positions) {
        const Node& node = graph_.nodes()[static_cast<size_t>(position.node)];
        const bool looks_up = node.op->name() != "frozen_linear";
        int64_t bytes = 0, own_bytes = 0;
        for (const auto& [piece, release] : resident)
          bytes += static_cast<int64_t>(plan.pieces[static_cast<size_t>(piece)].size());
        for (int piece = 0; piece < static_cast<int>(plan.pieces.size()); ++piece) {
          if (looks_up || weights_[static_cast<size_t>(weight_of(plan, piece))] != node.inputs[1]) continue;
          EXPECT_TRUE(resident.contains(piece)) << "node " << position.node << " lacks piece " << piece;
          own_bytes += static_cast<int64_t>(plan.pieces[static_cast<size_t>(piece)].size());
        }
        EXPECT_LE(bytes, std::max(budget_bytes, own_bytes));
        most = std::max(most, bytes);
        ++event;
        for (const int piece : position.release) {
          if (looks_up && !resident.contains(piece)) continue;  // what single rows brought in
          ASSERT_TRUE(resident.contains(piece));
          EXPECT_EQ(resident[piece], event);
          resident.erase(piece);
        }
        ask(position.ask);
      }
    EXPECT_GE(plan.most_resident_bytes, most);
  }

  TempDir directory_;
  MappedFile file_;
  Graph graph_;
  Extent tokens_ = graph_.symbol("T", 4);
  ValueId x_ = graph_.input("x", DType::kF32, {tokens_, kWidth});
  ValueId y_ = x_;
  std::vector<Tensor> tensors_;
  std::vector<ValueId> weights_;
};

TEST_F(StreamTest, PiecesAreWholePagesThatTileTheTensors) {
  uses({0, 1, 2, 3, 4, 5});
  const StreamPlan all = plan(kTensorBytes);
  const std::byte* next = file_.bytes().data() + page_bytes();  // the first page is the header's
  int64_t bytes = 0;
  for (const std::span<const std::byte> piece : all.pieces) {
    EXPECT_EQ(piece.data(), next);
    next += piece.size();
    bytes += static_cast<int64_t>(piece.size());
  }
  EXPECT_EQ(next, file_.bytes().data() + file_.bytes().size());
  EXPECT_EQ(all.streamed_bytes, bytes);
}

TEST_F(StreamTest, AsksAheadWithinTheBudgetAndReleasesAfterTheLastUse) {
  uses({0, 1, 2, 2, 1, 0});  // forward, and backward
  const int64_t budget = 2 * kTensorBytes + page_bytes();
  const StreamPlan two = plan(budget);
  expect_sound(two, budget);
  EXPECT_EQ(weights_of(two, pieces_of(two.first)), (std::set<int>{0, 1}));
  const std::vector<std::pair<std::set<int>, std::set<int>>> expected = {
      {{0}, {2}},              // forward is past 0
      {{}, {}},                // 1 is wanted again within the budget
      {{}, {}},   {{2}, {0}},  // backward
      {{}, {}},   {{}, {}},    // the next run begins with 0 and 1
  };
  ASSERT_EQ(two.positions.size(), expected.size());
  for (size_t p = 0; p < expected.size(); ++p) {
    EXPECT_EQ(weights_of(two, two.positions[p].release), expected[p].first) << p;
    EXPECT_EQ(weights_of(two, pieces_of(two.positions[p].ask)), expected[p].second) << p;
  }
}

TEST_F(StreamTest, EveryBudgetIsSoundForARecomputedGraph) {
  // Forward; then for each segment its forward part again, and backward.
  uses({0, 1, 2, 3, 4, 5, 4, 5, 5, 4, 2, 3, 3, 2, 0, 1, 1, 0});
  for (int64_t budget :
       {int64_t{1}, kTensorBytes, 2 * kTensorBytes, 3 * kTensorBytes + 1, 5 * kTensorBytes, 7 * kTensorBytes})
    expect_sound(plan(budget), budget);
  const StreamPlan all = plan(7 * kTensorBytes);
  EXPECT_EQ(all.first.size(), all.pieces.size()) << "where all fits, all is read once";
  for (const StreamPlan::Position& position : all.positions) EXPECT_TRUE(position.ask.empty());
}

TEST_F(StreamTest, WeightsOutsideOfTheFileAreLeftAlone) {
  std::vector<float> other(kWidth * kWidth);
  weights_.push_back(graph_.frozen("other", dense(other.data(), DType::kF32, {kWidth, kWidth})));
  use(6);
  EXPECT_TRUE(plan(kTensorBytes).positions.empty());
  ThreadPool pool(1);
  Executor executor(graph_, cpu_backend(), pool);
  WeightStream stream(plan(kTensorBytes));
  executor.set_stream(&stream);
  std::vector<float> x(4 * kWidth);
  executor.bind(x_, x.data());
  executor.run(std::vector<int64_t>{4});
}

// Whether the process has the page at `address` mapped. Bit 63 of an entry of pagemap (Linux,
// Documentation/admin-guide/mm/pagemap.rst).
bool is_resident(const void* address) {
  std::ifstream pagemap("/proc/self/pagemap", std::ios::binary);
  uint64_t entry = 0;
  pagemap.seekg(
      static_cast<std::streamoff>(reinterpret_cast<uintptr_t>(address) / static_cast<size_t>(page_bytes()) * 8));
  pagemap.read(reinterpret_cast<char*>(&entry), sizeof entry);
  PATINA_CHECK(pagemap.good(), "no pagemap");
  return entry >> 63;
}

// Waits for the reader; false where what is resident does not become what it should be.
bool becomes(const std::vector<const void*>& places, const std::vector<bool>& expected) {
  constexpr int kTries = 10'000;
  for (int i = 0; i < kTries; ++i) {
    bool equal = true;
    for (size_t p = 0; p < places.size(); ++p) equal = equal && is_resident(places[p]) == expected[p];
    if (equal) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_F(StreamTest, PagesComeAndGoWithTheRun) {
  uses({0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0});
  const StreamPlan two = plan(2 * kTensorBytes + page_bytes());
  std::vector<const void*> middles;  // a fault brings in pages around it too, but not so many
  for (const Tensor& tensor : tensors_) middles.push_back(static_cast<std::byte*>(tensor.data) + kTensorBytes / 2);
  for (const void* middle : middles) EXPECT_EQ(*static_cast<const char*>(middle), 0);  // all resident before
  ThreadPool pool(2);
  Executor executor(graph_, cpu_backend(), pool);
  WeightStream stream(two);
  executor.set_stream(&stream);
  std::vector<float> x(4 * kWidth);
  executor.bind(x_, x.data());
  for (int run = 0; run < 2; ++run) {
    size_t position = 0;
    std::vector<bool> resident(tensors_.size());
    for (const int weight : weights_of(two, pieces_of(two.first))) resident[static_cast<size_t>(weight)] = true;
    executor.run(std::vector<int64_t>{4}, [&](const auto&...) {
      const StreamPlan::Position& passed = two.positions[position++];
      for (const int weight : weights_of(two, passed.release)) resident[static_cast<size_t>(weight)] = false;
      for (const int weight : weights_of(two, pieces_of(passed.ask))) resident[static_cast<size_t>(weight)] = true;
      EXPECT_TRUE(becomes(middles, resident)) << "run " << run << " position " << position - 1;
    });
  }
}

TEST_F(StreamTest, ARunLeftInItsMiddleIsTakenUpByTheNext) {
  uses({0, 1, 2, 3, 4, 5});
  const StreamPlan two = plan(2 * kTensorBytes + page_bytes());
  WeightStream stream(two);
  std::vector<const void*> middles;
  for (const Tensor& tensor : tensors_) middles.push_back(static_cast<std::byte*>(tensor.data) + kTensorBytes / 2);
  stream.begin();
  stream.passed(0);
  stream.passed(2);
  EXPECT_TRUE(becomes(middles, {false, false, false, true, true, false}));
  stream.begin();
  EXPECT_TRUE(becomes(middles, {true, true, false, false, false, false}));
}

// A tied head of 12 MiB: looked up at first, then gone through in rows.
class HeadStreamTest : public StreamTest {
 protected:
  static constexpr int64_t kVocabulary = 12 << 10;
  HeadStreamTest() : StreamTest({kVocabulary, kWidth, kWidth}) {
    const ValueId tokens = graph_.input("tokens", DType::kI32, {tokens_});
    labels_ = graph_.input("labels", DType::kI32, {tokens_});
    y_ = embedding(graph_, tokens, weights_[0], "embedding");
    uses({1, 2});
    const ValueId head = graph_.frozen("head", tensors_[0]);
    graph_.mark_output(head_loss(graph_, y_, head, labels_, true, "head"));
    graph_.mark_output(y_);
    executor_.bind(tokens, ids_.data());
    executor_.bind(labels_, ids_.data());
  }

  ValueId labels_;
  std::vector<int32_t> ids_ = {1, 12'000, 6'000, 3};
  ThreadPool pool_{2};
  Executor executor_{graph_, cpu_backend(), pool_};
};

TEST_F(HeadStreamTest, LargeHeadPassesThroughTheWindow) {
  const int64_t budget = 2 * kPieceBytes + 2 * kTensorBytes;
  const StreamPlan small = plan(budget);
  expect_sound(small, budget);
  EXPECT_LE(small.most_resident_bytes, budget + 4 * (64 << 10));
  EXPECT_EQ(small.positions.size(), 1u + 2u + 6u + 1u);
  EXPECT_EQ(small.positions[3].rows, 2048 + 4) << "the piece begins at the tensor's first whole page";
  EXPECT_EQ(small.positions[8].rows, kVocabulary);
  std::set<int> rows(small.positions[0].release.begin(), small.positions[0].release.end());
  EXPECT_EQ(rows.size(), 5u) << "what a lookup touches is released, but for what is read ahead already";

  WeightStream stream(small);
  std::vector<const void*> ends;
  for (int piece = 0; piece < 6; ++piece)
    ends.push_back(small.pieces[static_cast<size_t>(piece)].data() +
                   small.pieces[static_cast<size_t>(piece)].size() / 2);
  stream.begin();
  for (int node = 0; node < 3; ++node) stream.passed(node);
  EXPECT_TRUE(becomes(ends, {true, true, false, false, false, false}));
  stream.passed_rows(3, 2051);
  EXPECT_TRUE(becomes(ends, {true, true, false, false, false, false}));
  stream.passed_rows(3, 2052);
  EXPECT_TRUE(becomes(ends, {false, true, true, false, false, false}));
  stream.passed_rows(3, 8200);
  EXPECT_TRUE(becomes(ends, {false, false, false, false, true, true}));
  stream.passed(3);
  EXPECT_TRUE(becomes(ends, {false, false, false, false, false, false}));
}

TEST_F(HeadStreamTest, KernelTellsHowFarItIs) {
  const StreamPlan small = plan(kPieceBytes);
  std::vector<int64_t> told;
  const auto tell = [&](int64_t rows) { told.push_back(rows); };
  const FunctionRef<void(int64_t)> rows_done(tell);
  std::vector<float> h(4 * kWidth, 0.5f), loss(1), dh(4 * kWidth);
  const Node& node = graph_.nodes().back();
  const KernelEntry& kernel = cpu_backend().kernel("head_loss");
  const std::vector<Tensor> in = {dense(h.data(), DType::kF32, {4, kWidth}), tensors_[0],
                                  dense(ids_.data(), DType::kI32, {4})},
                            out = {dense(loss.data(), DType::kF32, {1}), dense(dh.data(), DType::kF32, {4, kWidth})};
  std::vector<std::byte> memory(static_cast<size_t>(kernel.scratch_bytes(*node.op, in, out, 2)) + 64);
  const size_t shift = 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
  KernelContext context{pool_, std::span(memory).subspan(shift), &rows_done};
  kernel.run(*node.op, in, out, context);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), kVocabulary);
  EXPECT_GT(told.size(), 6u);
}

}  // namespace
}  // namespace patina
