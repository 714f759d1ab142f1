#include "graph/stream.h"

#include <algorithm>
#include <map>

#include "base/file.h"

namespace patina {

namespace {

// The page cache consists of folios of at most this size, aligned in the file, and a fault maps the whole folio
// (Linux 6.18; earlier ones map 64 KiB). Also small enough that a release does not wait for long while a piece is read.
constexpr int64_t kPieceBytes = 2 << 20;

struct StoredTensor {
  const std::byte* data;
  int64_t bytes;
  std::vector<int> pieces;
};

// What one position uses.
struct Use {
  std::vector<int> pieces;
  std::vector<int> touched;  // of tensors of which it looks up single rows: not read ahead
  int64_t touched_bytes = 0;
};

// Cuts tensors into pieces, each tensor once.
class Pieces {
 public:
  Pieces(std::span<const std::span<const std::byte>> files, StreamPlan& plan) : files_(files), plan_(plan) {}

  // Null where the value lies elsewhere than in the files.
  const StoredTensor* find(const Graph& graph, ValueId id) {
    const Value& value = graph.value(graph.storage(id));
    const auto* const data = static_cast<const std::byte*>(value.data);
    if (value.kind != ValueKind::kFrozen) return nullptr;
    const auto at_data = std::ranges::find_if(files_, [&](std::span<const std::byte> candidate) {
      return data >= candidate.data() && data < candidate.data() + candidate.size();
    });
    if (at_data == files_.end()) return nullptr;
    const std::span<const std::byte> file = *at_data;
    const auto [found, fresh] = tensors_.try_emplace(data);
    StoredTensor& tensor = found->second;
    if (!fresh) return &tensor;
    tensor.data = data;
    tensor.bytes = graph.maximum_bytes(graph.storage(id));
    const auto next_page = [](int64_t offset) { return (offset + page_bytes() - 1) / page_bytes() * page_bytes(); };
    const int64_t begin = data - file.data(), end = std::min(next_page(begin + tensor.bytes), std::ssize(file));
    for (int64_t at = next_page(begin), bytes; at < end; at += bytes) {
      tensor.pieces.push_back(static_cast<int>(plan_.pieces.size()));
      bytes = std::min(kPieceBytes - at % kPieceBytes, end - at);
      plan_.pieces.push_back(file.subspan(static_cast<size_t>(at), static_cast<size_t>(bytes)));
      plan_.streamed_bytes += bytes;
    }
    return &tensor;
  }

  int64_t bytes(int piece) const { return static_cast<int64_t>(plan_.pieces[static_cast<size_t>(piece)].size()); }
  const std::byte* end(int piece) const {
    const std::span<const std::byte> span = plan_.pieces[static_cast<size_t>(piece)];
    return span.data() + span.size();
  }

 private:
  std::span<const std::span<const std::byte>> files_;
  StreamPlan& plan_;
  std::map<const std::byte*, StoredTensor> tensors_;
};

// Appends the positions of a node.
void add_positions(const Graph& graph, int node, Pieces& pieces, StreamPlan& plan, std::vector<Use>& uses) {
  const Node& at = graph.nodes()[static_cast<size_t>(node)];
  if (at.op->name() == "view") return;
  const bool looks_up = at.op->name() == "embedding", in_rows = at.op->name() == "head_loss";
  Use use;
  const auto touch = [&](const StoredTensor& tensor, int64_t rows) {
    use.touched.insert(use.touched.end(), tensor.pieces.begin(), tensor.pieces.end());
    use.touched_bytes += std::min(tensor.bytes, std::min(rows, kLookupRows) * kPieceBytes);
  };
  for (const ValueId input : at.inputs) {
    const StoredTensor* const tensor = input == kNoValue ? nullptr : pieces.find(graph, input);
    if (tensor == nullptr) continue;
    if (looks_up) {
      touch(*tensor, graph.maximum_shape(at.outputs[0])[0]);
    } else if (in_rows) {
      const int64_t rows = graph.maximum_shape(input)[0], row_bytes = tensor->bytes / rows;
      for (const int piece : tensor->pieces) {
        const int64_t bytes = pieces.end(piece) - tensor->data;
        plan.positions.push_back({node, std::min(rows, (bytes + row_bytes - 1) / row_bytes), {}, {}, {}});
        uses.push_back({{piece}, {}, 0});
      }
      touch(*tensor, graph.maximum_shape(at.inputs[0])[0]);  // the rows of labels, at the end
    } else {
      use.pieces.insert(use.pieces.end(), tensor->pieces.begin(), tensor->pieces.end());
    }
  }
  if (use.pieces.empty() && use.touched.empty()) return;
  plan.positions.push_back({node, StreamPlan::kNever, {}, {}, {}});
  uses.push_back(std::move(use));
}

// The window of position `p`, in the order of use.
std::vector<int> window(const std::vector<Use>& uses, size_t p, int64_t budget_bytes, const Pieces& pieces,
                        size_t all_pieces) {
  std::vector<int> inside;
  std::vector<bool> is_inside(all_pieces);
  int64_t bytes = 0;
  for (size_t i = 0; i < uses.size(); ++i)
    for (const int piece : uses[(p + i) % uses.size()].pieces) {
      if (is_inside[static_cast<size_t>(piece)]) continue;
      bytes += pieces.bytes(piece);
      if (i > 0 && bytes > budget_bytes) return inside;
      is_inside[static_cast<size_t>(piece)] = true;
      inside.push_back(piece);
    }
  return inside;
}

}  // namespace

StreamPlan plan_stream(const Graph& graph, std::span<const std::span<const std::byte>> files, int64_t budget_bytes) {
  StreamPlan plan;
  Pieces pieces(files, plan);
  std::vector<Use> uses;  // per position
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    add_positions(graph, node, pieces, plan, uses);
    plan.passed.push_back(static_cast<int>(plan.positions.size()));
  }
  const size_t count = plan.positions.size();
  if (count == 0) return plan;

  const auto window_at = [&](size_t p) { return window(uses, p, budget_bytes, pieces, plan.pieces.size()); };
  constexpr int kOutside = -1;
  std::vector<int> inside(plan.pieces.size(), kOutside);  // per piece: the last position whose window it is in
  const auto enter = [&](size_t p, const std::vector<int>& pieces_inside, std::vector<StreamPlan::Ask>& ask) {
    int64_t bytes = uses[p % count].touched_bytes;
    for (const int piece : pieces_inside) {
      int& last = inside[static_cast<size_t>(piece)];
      if (last != static_cast<int>(p) - 1 || p == 0) ask.push_back({piece, StreamPlan::kNever});
      last = static_cast<int>(p);
      bytes += pieces.bytes(piece);
    }
    plan.most_resident_bytes = std::max(plan.most_resident_bytes, bytes);
  };
  std::vector<int> now = window_at(0);
  enter(0, now, plan.first);
  for (size_t p = 0; p < count; ++p) {
    StreamPlan::Position& position = plan.positions[p];
    std::vector<int> next = window_at((p + 1) % count);
    enter(p + 1, next, position.ask);
    for (const int piece : uses[p].touched)
      if (inside[static_cast<size_t>(piece)] != static_cast<int>(p) + 1) position.lookups.push_back(piece);
    for (const int piece : now)
      if (inside[static_cast<size_t>(piece)] != static_cast<int>(p) + 1) position.release.push_back(piece);
    now = std::move(next);
  }

  // How long each piece stays, from two rounds of events: those of the first go on into the second.
  std::vector<std::pair<StreamPlan::Ask*, int64_t>> asked(plan.pieces.size());
  const auto note = [&](std::vector<StreamPlan::Ask>& list, int64_t event) {
    for (StreamPlan::Ask& ask : list) asked[static_cast<size_t>(ask.piece)] = {&ask, event};
  };
  note(plan.first, 0);
  for (int64_t event = 1; event <= 2 * static_cast<int64_t>(count); ++event) {
    StreamPlan::Position& position = plan.positions[static_cast<size_t>(event - 1) % count];
    for (const int piece : position.release)
      if (auto& [ask, since] = asked[static_cast<size_t>(piece)]; ask != nullptr) {
        ask->positions = event - since;
        ask = nullptr;
      }
    note(position.ask, event);
  }
  return plan;
}

WeightStream::WeightStream(StreamPlan plan) : plan_(std::move(plan)) {
  reader_.emplace([this] { return work(); });
}

void WeightStream::advance(int64_t position) {
  if (passed_.load(std::memory_order_relaxed) == position) return;
  passed_.store(position, std::memory_order_release);
  reader_->wake();
}

void WeightStream::begin() {
  const auto count = static_cast<int64_t>(plan_.positions.size());
  if (count == 0) return;
  if (!started_) {  // what loading and checking the model has left
    for (const std::span<const std::byte> piece : plan_.pieces) release_pages(piece);
    started_ = true;
    reader_->wake();
  }
  // A run that was left in its middle counts as done.
  run_start_ = (passed_.load(std::memory_order_relaxed) + count - 1) / count * count;
  advance(run_start_);
}

void WeightStream::passed(int node) { advance(run_start_ + plan_.passed[static_cast<size_t>(node)]); }

void WeightStream::rows_done(int64_t rows) {
  const int64_t passed = passed_.load(std::memory_order_relaxed);
  auto at = static_cast<size_t>(passed - run_start_);
  if (at >= plan_.positions.size()) return;  // the weight lies elsewhere than in the files
  for (const int node = plan_.positions[at].node; plan_.positions[at].node == node && plan_.positions[at].rows <= rows;)
    ++at;  // the last position of a node is passed by the node alone
  advance(run_start_ + static_cast<int64_t>(at));
}

// At once, for the reader may be late and each lookup may bring in a whole piece.
void WeightStream::looked_up() {
  const auto at = static_cast<size_t>(passed_.load(std::memory_order_relaxed) - run_start_);
  if (at >= plan_.positions.size()) return;  // the weight lies elsewhere than in the files
  for (const int piece : plan_.positions[at].lookups) release_pages(plan_.pieces[static_cast<size_t>(piece)]);
}

// Releases all that is due, then reads one piece. False where nothing is left to do.
bool WeightStream::work() {
  const int64_t passed = passed_.load(std::memory_order_acquire);
  const auto position = [&](int64_t event) -> const StreamPlan::Position& {
    return plan_.positions[static_cast<size_t>(event - 1) % plan_.positions.size()];
  };
  const auto bytes = [&](int piece) { return plan_.pieces[static_cast<size_t>(piece)]; };
  for (; released_ < passed; ++released_)
    for (const int piece : position(released_ + 1).release) release_pages(bytes(piece));
  for (; asked_ <= passed; ++asked_, next_ask_ = 0) {
    const std::vector<StreamPlan::Ask>& list = asked_ == 0 ? plan_.first : position(asked_).ask;
    while (next_ask_ < list.size()) {
      const StreamPlan::Ask& ask = list[next_ask_++];
      if (passed - asked_ >= ask.positions) continue;  // too late: it is released already
      read_pages(bytes(ask.piece));
      return true;
    }
  }
  return false;
}

}  // namespace patina
