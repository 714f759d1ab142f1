#include "backend/cpu/product.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/product_job.h"
#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

void run_product(ProductJob& job, int worker) {
  constexpr int64_t kPanelRows = kTileRows;
  float* const packed_b = job.packed_b + job.packed_b_floats * worker;
  float* const decoded = job.decoded + job.decoded_floats * worker;
  int64_t round = 0;
  for (int64_t m0 = 0; m0 < job.m; m0 += kBlockM) {
    const int64_t rows = std::min(kBlockM, job.m - m0);
    const int64_t panels = divide_up(rows, kPanelRows);
    // Where the columns give too few tasks, rows are split too.
    const int64_t groups = std::min(panels, job.chunks >= job.threads ? 1 : divide_up(2 * job.threads, job.chunks));
    const int64_t group_panels = divide_up(panels, groups);
    for (int64_t k0 = 0; k0 < job.k; k0 += job.pass_k, ++round) {
      const int64_t depth = std::min(job.pass_k, job.k - k0);
      // Panels of A, dealt out in stretches.
      const int64_t share = divide_up(panels, job.threads);
      for (int64_t p = worker * share; p < std::min(panels, (worker + 1) * share); ++p)
        pack_left(job.a, m0 + p * kPanelRows, std::min(kPanelRows, rows - p * kPanelRows), k0, depth,
                  job.packed_a + p * kPanelRows * depth);
      if (worker == 0) job.next[(round + 1) & 1].store(0, std::memory_order_relaxed);
      if (job.threads > 1) job.barrier->wait();
      const int64_t tasks = job.chunks * groups;
      for (int64_t task; (task = job.next[round & 1].fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        const int64_t n0 = task / groups * job.chunk_n, columns = std::min(job.chunk_n, job.n - n0);
        const int64_t p0 = task % groups * group_panels, p1 = std::min(panels, p0 + group_panels);
        if (p0 >= p1) continue;
        pack_right(job.b, job.decode, k0, depth, n0, columns, packed_b, decoded);
        for (int64_t p = p0; p < p1; ++p) {
          const int64_t row = p * kPanelRows, tile_rows = std::min(kPanelRows, rows - row);
          float* const c = job.c + (m0 + row) * job.c_stride + n0;
          for (int64_t j = 0; j < columns; j += kTileColumns)
            tile(depth, job.packed_a + row * depth, packed_b + j * depth, c + j, job.c_stride, tile_rows,
                 std::min(kTileColumns, columns - j), job.accumulate || k0 > 0);
        }
      }
      if (job.threads > 1) job.barrier->wait();
    }
  }
}

int64_t tile_columns() { return kTileColumns; }

void run_few_rows(const Tensor& x, const Tensor& weight, const Tensor& acc, const Tensor& y, DecodeRow decode,
                  int64_t first, int64_t last) {
  few_rows(x, weight, acc, y, decode, first, last);
}

}  // namespace patina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina::cpu {

HWY_EXPORT(run_product);
HWY_EXPORT(tile_columns);
HWY_EXPORT(run_few_rows);

RightOperand RightOperand::numbers(const float* data, int64_t row_stride, int64_t column_stride) {
  RightOperand operand;
  operand.data = data;
  operand.row_stride = row_stride;
  operand.column_stride = column_stride;
  return operand;
}

RightOperand RightOperand::frozen(const Tensor& weight, bool transposed, int64_t first_row) {
  RightOperand operand;
  operand.weight = &weight;
  operand.transposed = transposed;
  operand.first_row = first_row;
  return operand;
}

int64_t product_scratch_bytes(int64_t m, int64_t n, int64_t k, int threads) {
  const int64_t floats = packed_a_floats(m, k) + threads * (packed_b_floats(n, k) + decoded_floats(n, k));
  return floats * static_cast<int64_t>(sizeof(float));
}

void product(int64_t m, int64_t n, int64_t k, const LeftOperand& a, const RightOperand& b, float* c, int64_t c_stride,
             bool accumulate, ThreadPool& pool, std::span<std::byte> scratch) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate)
      for (int64_t row = 0; row < m; ++row) std::fill_n(c + row * c_stride, n, 0.0f);
    return;
  }
  const int threads = m * n * k < 32 * 32 * 32 ? 1 : pool.size();
  PATINA_CHECK(static_cast<int64_t>(scratch.size()) >= product_scratch_bytes(m, n, k, threads),
               "scratch {} for {}x{}x{}", scratch.size(), m, n, k);
  ProductJob job{};
  job.m = m;
  job.n = n;
  job.k = k;
  job.a = a;
  job.b = b;
  job.c = c;
  job.c_stride = c_stride;
  job.accumulate = accumulate;
  job.threads = threads;

  // Passes of equal depth, cut where the stored blocks allow it when the contraction runs along them.
  const int64_t block = b.weight != nullptr ? info(b.weight->dtype).block_values : 1;
  const bool along_blocks = b.weight != nullptr && b.transposed;
  job.pass_k = round_up(divide_up(k, divide_up(k, kPassK)), along_blocks ? block : 1);
  // Chunks of columns so that the busiest worker has least: among the counts near the smallest.
  const int64_t align =
      std::lcm(HWY_DYNAMIC_DISPATCH(tile_columns)(), b.weight != nullptr && !b.transposed ? block : 1);
  const int64_t fewest = divide_up(n, std::max(kChunkN, align));
  int64_t best_load = INT64_MAX;
  for (int64_t chunks = fewest; chunks <= fewest + 2 * threads; ++chunks) {
    const int64_t width = round_up(divide_up(n, chunks), align);
    if (width > std::max(kChunkN, align)) continue;
    const int64_t count = divide_up(n, width), load = divide_up(count, threads) * width;
    if (load < best_load) {
      best_load = load;
      job.chunk_n = width;
      job.chunks = count;
    }
  }

  if (b.weight != nullptr) job.decode = decode_row(b.weight->dtype);
  float* memory = reinterpret_cast<float*>(scratch.data());
  job.packed_a = memory;
  memory += packed_a_floats(m, k);
  job.packed_b_floats = packed_b_floats(n, k);
  job.packed_b = memory;
  memory += job.packed_b_floats * threads;
  job.decoded = memory;
  job.decoded_floats = decoded_floats(n, k);
  Barrier barrier(threads);
  std::atomic<int64_t> next[2] = {0, 0};
  job.barrier = &barrier;
  job.next = next;
  const auto run = HWY_DYNAMIC_DISPATCH(run_product);
  if (threads == 1)
    run(job, 0);
  else
    pool.run_on_all([&](int worker) { run(job, worker); });
}

void few_row_product(const Tensor& x, const Tensor& weight, const Tensor& acc, const Tensor& y, ThreadPool& pool) {
  PATINA_CHECK(x.shape[0] < kFewRows && x.strides[1] == 1, "x {} strides {}", x.shape.str(), x.strides.str());
  const int64_t n = weight.shape[0];
  const int64_t tasks = std::max<int64_t>(1, std::min<int64_t>(divide_up(n, 16), 8 * pool.size()));
  const int64_t share = round_up(divide_up(n, tasks), kRowsTogether);
  const DecodeRow decode = decode_row(weight.dtype);
  const auto run = HWY_DYNAMIC_DISPATCH(run_few_rows);
  pool.run(tasks,
           [&](int64_t task, int) { run(x, weight, acc, y, decode, task * share, std::min(n, (task + 1) * share)); });
}

}  // namespace patina::cpu
#endif  // HWY_ONCE
