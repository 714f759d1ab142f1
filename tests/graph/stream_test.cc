#include "graph/stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
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

constexpr int64_t kWidth = 1024, kTensorBytes = kWidth * kWidth * 4, kPieceBytes = 2 << 20;

// A file of F32 matrices [rows,1024], one after another behind a header, and a graph that reads them.
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
      weights_.push_back(graph_.frozen(fmt::format("w{}", weights_.size()), tensors_.back()));
      at += count * kWidth * 4;
    }
  }

  void use(int weight) { y_ = frozen_linear(graph_, y_, weights_[static_cast<size_t>(weight)], kNoValue, "linear"); }
  void uses(std::initializer_list<int> order) {
    for (const int weight : order) use(weight);
  }
  StreamPlan plan(int64_t budget_bytes) const {
    const std::span<const std::byte> file = file_.bytes();
    return plan_stream(graph_, std::span(&file, 1), budget_bytes);
  }

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

  // A place of each tensor that its neighbours' faults do not bring in: they reach for a piece at most.
  std::vector<const void*> inner_places() const {
    std::vector<const void*> places;
    for (const Tensor& tensor : tensors_) places.push_back(static_cast<std::byte*>(tensor.data) + kPieceBytes * 3 / 2);
    return places;
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
        const bool has_rows = node.op->name() != "frozen_linear";
        int64_t bytes = 0, own_bytes = 0;
        for (const auto& [piece, release] : resident)
          bytes += static_cast<int64_t>(plan.pieces[static_cast<size_t>(piece)].size());
        for (int piece = 0; piece < static_cast<int>(plan.pieces.size()); ++piece) {
          if (has_rows || weights_[static_cast<size_t>(weight_of(plan, piece))] != node.inputs[1]) continue;
          EXPECT_TRUE(resident.contains(piece)) << "node " << position.node << " lacks piece " << piece;
          own_bytes += static_cast<int64_t>(plan.pieces[static_cast<size_t>(piece)].size());
        }
        EXPECT_LE(bytes, std::max(budget_bytes, own_bytes));
        most = std::max(most, bytes);
        ++event;
        for (const int piece : position.release) {
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
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(address) / static_cast<size_t>(page_bytes()) * 8);
  const bool read = pread(pagemap, &entry, sizeof entry, at) == sizeof entry;
  close(pagemap);
  PATINA_CHECK(read, "no pagemap");
  return entry >> 63;
}

// Waits for the reader; false where what is resident does not become what it should be.
bool becomes(const std::vector<const void*>& places, const std::vector<bool>& expected) {
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    bool equal = true;
    for (size_t p = 0; p < places.size(); ++p) equal = equal && is_resident(places[p]) == expected[p];
    if (equal) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string seen(const std::vector<const void*>& places) {
  std::string text;
  for (const void* place : places) text += is_resident(place) ? '1' : '0';
  return text;
}

TEST_F(StreamTest, PagesComeAndGoWithTheRun) {
  uses({0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0});
  const StreamPlan two = plan(2 * kTensorBytes + page_bytes());
  const std::vector<const void*> middles = inner_places();
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
      EXPECT_TRUE(becomes(middles, resident)) << "run " << run << " position " << position - 1 << ": " << seen(middles);
    });
  }
}

TEST_F(StreamTest, ARunLeftInItsMiddleIsTakenUpByTheNext) {
  uses({0, 1, 2, 3, 4, 5});
  const StreamPlan two = plan(2 * kTensorBytes + page_bytes());
  WeightStream stream(two);
  const std::vector<const void*> middles = inner_places();
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
  static constexpr int64_t kVocabulary = 3 << 10;
  HeadStreamTest() : StreamTest({kVocabulary, kWidth, kWidth}) {
    tokens_of_ = graph_.input("tokens", DType::kI32, {tokens_});
    labels_ = graph_.input("labels", DType::kI32, {tokens_});
    y_ = embedding(graph_, tokens_of_, weights_[0], "embedding");
    uses({1, 2});
    const ValueId head = graph_.frozen("head", tensors_[0]);
    graph_.mark_output(head_loss(graph_, y_, head, labels_, true, "head"));
    graph_.mark_output(y_);
  }

  ValueId tokens_of_, labels_;
  std::vector<int32_t> ids_ = {1, 3'000, 1'500, 3};
  ThreadPool pool_{2};
};

TEST_F(HeadStreamTest, LargeHeadPassesThroughTheWindow) {
  const int64_t budget = 3 * kPieceBytes;
  const StreamPlan small = plan(budget);
  expect_sound(small, budget);
  EXPECT_LE(small.most_resident_bytes, budget + 4 * kPieceBytes);
  EXPECT_GT(small.most_resident_bytes, budget);
  ASSERT_EQ(small.positions.size(), 1u + 2u + 7u + 1u);  // six pieces and a page
  EXPECT_EQ(small.positions[3].rows, 512) << "the header takes 96 bytes of the first 2 MiB";
  EXPECT_EQ(small.positions[8].rows, kVocabulary);
  EXPECT_EQ(small.positions[9].rows, kVocabulary);
  EXPECT_EQ(small.positions[0].lookups.size(), 7u);
  EXPECT_EQ(small.positions[10].lookups.size(), 7u);

  WeightStream stream(small);
  std::vector<const void*> ends;
  for (int piece = 0; piece < 6; ++piece)
    ends.push_back(small.pieces[static_cast<size_t>(piece)].data() +
                   small.pieces[static_cast<size_t>(piece)].size() / 2);
  stream.begin();
  for (int node = 0; node < 3; ++node) stream.passed(node);
  EXPECT_TRUE(becomes(ends, {true, true, true, false, false, false}));
  stream.rows_done(511);
  EXPECT_TRUE(becomes(ends, {true, true, true, false, false, false}));
  stream.rows_done(512);
  EXPECT_TRUE(becomes(ends, {false, true, true, true, false, false}));
  stream.rows_done(2100);
  EXPECT_TRUE(becomes(ends, {false, false, false, false, true, true}));
  stream.rows_done(kVocabulary);
  EXPECT_TRUE(becomes(ends, {false, false, false, false, false, false}));
  EXPECT_EQ(*static_cast<const char*>(ends[3]), 0);  // the row of a label
  EXPECT_TRUE(is_resident(ends[3]));
  stream.looked_up();
  EXPECT_FALSE(is_resident(ends[3]));
}

TEST_F(HeadStreamTest, StreamedRunGivesTheSameBits) {
  Executor executor(graph_, cpu_backend(), pool_);
  executor.bind(tokens_of_, ids_.data());
  executor.bind(labels_, ids_.data());
  std::vector<float> losses;
  const ValueId loss = graph_.outputs()[0];
  executor.run(std::vector<int64_t>{4});
  losses.push_back(executor.tensor(loss).f32()[0]);
  WeightStream stream(plan(kPieceBytes));
  executor.set_stream(&stream);
  for (int run = 0; run < 2; ++run) {
    executor.run(std::vector<int64_t>{4});
    losses.push_back(executor.tensor(loss).f32()[0]);
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
}

// What a kernel tells.
struct Told : WeightProgress {
  void rows_done(int64_t count) override { rows.push_back(count); }
  void looked_up() override { ++lookups; }
  std::vector<int64_t> rows;
  int lookups = 0;
};

TEST_F(HeadStreamTest, KernelsTellHowFarTheyAre) {
  constexpr int64_t kTokens = 3 * kLookupRows - 1;
  std::vector<float> h(kTokens * kWidth, 0.5f), loss(1), dh(kTokens * kWidth);
  std::vector<int32_t> ids(kTokens, 7);
  const auto run = [&](const Node& node, const std::vector<Tensor>& in, const std::vector<Tensor>& out) {
    const KernelEntry& kernel = cpu_backend().kernel(node.op->name());
    const int64_t bytes = kernel.scratch_bytes == nullptr ? 0 : kernel.scratch_bytes(*node.op, in, out, 2);
    std::vector<std::byte> memory(static_cast<size_t>(bytes) + 64);
    Told told;
    KernelContext context{pool_, std::span(memory).subspan(64 - reinterpret_cast<uintptr_t>(memory.data()) % 64),
                          &told};
    kernel.run(*node.op, in, out, context);
    return told;
  };
  const Tensor rows = dense(h.data(), DType::kF32, {kTokens, kWidth}),
               labels = dense(ids.data(), DType::kI32, {kTokens}), sum = dense(loss.data(), DType::kF32, {1}),
               gradient = dense(dh.data(), DType::kF32, {kTokens, kWidth});
  const Told head = run(graph_.nodes().back(), {rows, tensors_[0], labels}, {sum, gradient});
  ASSERT_FALSE(head.rows.empty());
  EXPECT_TRUE(std::is_sorted(head.rows.begin(), head.rows.end()));
  EXPECT_EQ(head.rows.back(), kVocabulary);
  EXPECT_GT(head.rows.size(), 5u);
  EXPECT_EQ(head.lookups, 3);
  const Told embedded = run(graph_.nodes().front(), {labels, tensors_[0]}, {rows});
  EXPECT_TRUE(embedded.rows.empty());
  EXPECT_EQ(embedded.lookups, 3);
}

}  // namespace
}  // namespace patina
