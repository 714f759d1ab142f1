// Attention on the CPU. Forward: by tiles of queries with a running softmax. Backward makes the probabilities again
// from lse, once for dq (tiles of queries) and once for dk and dv (tiles of keys), so that no task adds to another's
// output. In the forward op a sequence of fewer than kFewQueries queries (generation) takes a path of direct inner
// products, so its bits differ from those of the same query in a longer sequence.
//
// Here: how it is cut into tasks: tiles of rows that never cross a sequence, and which keys each query sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/cpu/rows.h"
#include "ops/attention.h"

namespace patina::cpu {

// Rows of the operand that lies along vector lanes, and of the one that is walked over. 64 lanes are four AVX-512
// vectors, the width of the register block.
inline constexpr int64_t kLaneRows = 64;
inline constexpr int64_t kWalkRows = 64;
// Sequences of fewer queries than this are generation.
inline constexpr int64_t kFewQueries = 8;

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};

// One sequence. Query and key numbers count from its start.
struct AttentionSequence {
  Range rows, kv_rows;  // of q and of k
  int64_t first;
  int64_t reach_back, reach_ahead;  // a query at position p sees the keys from p - reach_back to p + reach_ahead

  int64_t queries() const { return rows.end - rows.begin; }
  int64_t keys() const { return kv_rows.end - kv_rows.begin; }
  // Keys that query i sees. Both ends grow with i.
  Range keys_of(int64_t i) const {
    return {std::clamp<int64_t>(first + i - reach_back, 0, keys()),
            std::clamp<int64_t>(first + i + reach_ahead + 1, 0, keys())};
  }
  // Queries that see any of the keys [begin, end).
  Range queries_of(const Range& wanted) const {
    return {std::clamp<int64_t>(wanted.begin - reach_ahead - first, 0, queries()),
            std::clamp<int64_t>(wanted.end + reach_back - first, 0, queries())};
  }
};

// The sequences of a call, checked.
class AttentionSequences {
 public:
  AttentionSequences(const AttentionSpec& spec, std::span<const Tensor> in) : spec_(spec) {
    const int64_t count = in[5].shape[0];
    PATINA_CHECK(in[3].shape[0] == count + 1 && in[4].shape[0] == count + 1, "offsets {} {}, first {}",
                 in[3].shape.str(), in[4].shape.str(), in[5].shape.str());
    q_offsets_ = {in[3].i32(), static_cast<size_t>(count + 1)};
    kv_offsets_ = {in[4].i32(), static_cast<size_t>(count + 1)};
    first_ = {in[5].i32(), static_cast<size_t>(count)};
    PATINA_CHECK(q_offsets_.front() == 0 && q_offsets_.back() == in[0].shape[0] && kv_offsets_.front() >= 0 &&
                     kv_offsets_.back() <= in[1].shape[0],
                 "q rows {}..{} of {}, key rows {}..{} of {}", q_offsets_.front(), q_offsets_.back(), in[0].shape[0],
                 kv_offsets_.front(), kv_offsets_.back(), in[1].shape[0]);
    PATINA_CHECK(std::ranges::is_sorted(q_offsets_) && std::ranges::is_sorted(kv_offsets_), "offsets must not fall");
  }

  int64_t query_tiles() const { return tiles(q_offsets_); }
  int64_t key_tiles() const { return tiles(kv_offsets_); }

  struct Tile {
    AttentionSequence sequence;
    Range rows;  // within the sequence
  };
  Tile query_tile(int64_t tile) const { return find(q_offsets_, tile); }
  Tile key_tile(int64_t tile) const { return find(kv_offsets_, tile); }

  // Rows of k that belong to a sequence.
  Range kv_rows() const { return {kv_offsets_.front(), kv_offsets_.back()}; }

 private:
  static int64_t tiles_of(std::span<const int32_t> offsets, size_t b) {
    return (offsets[b + 1] - offsets[b] + kLaneRows - 1) / kLaneRows;
  }
  static int64_t tiles(std::span<const int32_t> offsets) {
    int64_t total = 0;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) total += tiles_of(offsets, b);
    return total;
  }
  Tile find(std::span<const int32_t> offsets, int64_t tile) const {
    size_t b = 0;
    for (; tile >= tiles_of(offsets, b); ++b) tile -= tiles_of(offsets, b);
    constexpr int64_t kEverything = int64_t{1} << 40;
    const bool window = spec_.mask == AttentionSpec::Mask::kWindow, causal = spec_.mask == AttentionSpec::Mask::kCausal;
    const AttentionSequence sequence{{q_offsets_[b], q_offsets_[b + 1]},
                                     {kv_offsets_[b], kv_offsets_[b + 1]},
                                     first_[b],
                                     window ? spec_.window : kEverything,
                                     window   ? spec_.window
                                     : causal ? 0
                                              : kEverything};
    const int64_t begin = tile * kLaneRows, length = offsets[b + 1] - offsets[b];
    return {sequence, {begin, std::min(begin + kLaneRows, length)}};
  }

  const AttentionSpec& spec_;
  std::span<const int32_t> q_offsets_, kv_offsets_, first_;
};

struct AttentionRows {
  Rows q, k, v, o, lse;
};
struct AttentionGradRows : AttentionRows {
  Rows dy, dq, dk, dv;
};

}  // namespace patina::cpu
