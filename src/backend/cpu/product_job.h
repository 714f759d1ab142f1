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

inline constexpr int64_t kRowsAhead = 8;  // of a stored weight: asked for before they are decoded

// Rows of W that few_row_product meets together: their sums are independent, which hides the latency of a multiply-add.
inline constexpr int64_t kRowsTogether = 4;

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

struct ProductJob {
  int64_t m, n, k;
  LeftOperand a;
  RightOperand b;
  DecodeRow decode;
  float* c;
  int64_t c_stride;
  bool accumulate;

  int64_t pass_k;           // contraction per pass
  int64_t chunk_n, chunks;  // columns per task
  float* buffers;           // per worker: a chunk of B, a panel of A, decoded rows
  int64_t threads;
  std::atomic<int64_t>* next_task;
};

// Buffers of one worker, in floats.
struct ProductBuffers {
  ProductBuffers(int64_t n, int64_t k)
      : packed_b(round_up(std::min(n, kChunkN), kMaxTileColumns) * std::min(k, kPassK)),
        packed_a(std::max(kMaxTileRows * kPanelStride, kColumnRows * kPassK)),
        decoded(std::max(4 * kPassK, kChunkN)) {}
  int64_t total() const { return packed_b + packed_a + decoded; }

  int64_t packed_b, packed_a, decoded;
};

}  // namespace patina::cpu
