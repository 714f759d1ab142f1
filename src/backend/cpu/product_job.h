// One blocked product in progress: blocking, buffers and the synchronisation that its workers share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/cpu/product.h"
#include "base/threads.h"
#include "quant/decode.h"

namespace patina::cpu {

// Blocking. A pass covers kPassK of the contraction: one panel of A (rows x kPassK) stays in the first-level cache
// while the chunk of B that a worker packed (kPassK x kChunkN) streams past it from the second level; all of A's panels
// of a pass are shared and come from the last level. Values chosen by measurement, see docs/kernels.md.
inline constexpr int64_t kPassK = 512;
inline constexpr int64_t kChunkN = 320;
inline constexpr int64_t kBlockM = 2048;
inline constexpr int64_t kPad = 64;  // panel sizes are rounded for the widest kernel of any instruction set

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
  float* packed_a;          // shared: one pass of a block of rows
  float* packed_b;          // one chunk per worker
  int64_t packed_b_floats;
  float* decoded;  // row buffers per worker
  int64_t decoded_floats;
  int threads;
  Barrier* barrier;
  std::atomic<int64_t>* next;  // two task counters, used in turn
};

inline int64_t packed_a_floats(int64_t m, int64_t k) {
  return round_up(std::min(m, kBlockM) + kPad, kPad) * round_up(std::min(k, kPassK + 256), kPad);
}
inline int64_t packed_b_floats(int64_t n, int64_t k) {
  return round_up(std::min(n, kChunkN) + kPad + 256, kPad) * round_up(std::min(k, kPassK + 256), kPad);
}
inline int64_t decoded_floats(int64_t n, int64_t k) {
  return std::max(4 * round_up(std::min(k, kPassK + 256), kPad), round_up(std::min(n, kChunkN) + kPad + 256, kPad));
}

}  // namespace patina::cpu
