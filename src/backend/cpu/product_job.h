// One blocked product in progress: blocking, buffers and the task counter that its workers share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/cpu/product.h"
#include "base/threads.h"
#include "quant/decode.h"

namespace patina::cpu {

// Blocking. A worker packs kPassK x kChunkN of B, which stays in its second-level cache, and meets it with all rows of
// A, one panel at a time copied into the first level. Values chosen by measurement, see docs/kernels.md.
inline constexpr int64_t kPassK = 512;  // a multiple of every block of stored values
inline constexpr int64_t kChunkN = 256;

// Of any instruction set: what buffers are sized for.
inline constexpr int64_t kMaxTileRows = 12, kMaxTileColumns = 32;

inline constexpr int64_t kPanelStride = kPassK + 16;  // 33 cache lines: rows do not fall into one set
inline constexpr int64_t kColumnRows = 96;            // rows of A that are packed together as columns

// A product of so few rows is bound by reading B: packing B for the second level, to be met again by other rows, would
// be a second reading of it.
inline constexpr int64_t kThinRows = 32;
inline constexpr int64_t kThinDepth = 16;  // rows of B that are packed together, for the first level

inline constexpr int64_t kRowsAhead = 8;  // of what is packed in short stretches: asked for that many rows before

// Rows of W that few_row_product meets together: their sums are independent, which hides the latency of a multiply-add.
inline constexpr int64_t kRowsTogether = 4;

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Asks for values [begin, begin + count) of a stored row, one of many short stretches that no hardware foresees.
inline void prefetch_stored(const Tensor& weight, int64_t row, int64_t begin, int64_t count) {
  const DTypeInfo& type = info(weight.dtype);
  const std::byte* const from = weight.row(row) + begin / type.block_values * type.block_bytes;
  const int64_t bytes = count / type.block_values * type.block_bytes;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

struct alignas(64) TaskCounter {
  std::atomic<int64_t> taken{0};
};

struct TermJob : ProductTerm {
  DecodeRow decode;
  int64_t pass_k;  // contraction per pass
};

// Buffers of one worker, in floats.
struct ProductBuffers {
  ProductBuffers() = default;
  ProductBuffers(int64_t n, int64_t k)
      : packed_b(round_up(std::min(n, kChunkN), kMaxTileColumns) * std::min(k, kPassK)),
        packed_a(std::max(kMaxTileRows * kPanelStride, kColumnRows * kPassK)),
        decoded(std::max(4 * kPassK, kChunkN)) {}
  int64_t total() const { return packed_b + packed_a + decoded; }

  int64_t packed_b, packed_a, decoded;
};

struct ProductJob {
  int64_t m, n, longest_k;
  TermJob terms[kMaxTerms];
  int count;
  Addend acc;
  float* c;
  int64_t c_stride;
  bool thin;          // one term of few rows (run_thin_product), and with it:
  bool transposed_c;  // acc and what is to be written are C^T
  float a_scale;      // of A, rounded when packed

  int64_t chunk_n, chunks;  // columns per task
  bool splits_rows;         // a task is some rows of them
  ProductBuffers buffer_sizes;
  float* buffers;  // per worker: a chunk of B, panels of A, decoded rows
  int64_t threads;
  TaskCounter* counters;  // one a worker
};

// The tasks of a product as one worker takes them: first its own share, the same columns in every product as wide, so
// that they are likely still in its caches; then what others have left.
class TaskQueue {
 public:
  TaskQueue(const ProductJob& job, int worker, int64_t tasks)
      : counters_(job.counters), threads_(job.threads), tasks_(tasks), owner_(worker) {}
  // The next task, or -1.
  int64_t next() {
    for (; visited_ < threads_; ++visited_, owner_ = owner_ + 1 == threads_ ? 0 : owner_ + 1) {
      const int64_t task = owner_ * tasks_ / threads_ + counters_[owner_].taken.fetch_add(1, std::memory_order_relaxed);
      if (task < (owner_ + 1) * tasks_ / threads_) return task;
    }
    return -1;
  }

 private:
  TaskCounter* counters_;
  int64_t threads_, tasks_, owner_, visited_ = 0;
};

}  // namespace patina::cpu
