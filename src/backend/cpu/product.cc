#include "backend/cpu/product.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "backend/cpu/product_job.h"
#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/few_rows-inl.h"
#include "backend/cpu/product_pack-inl.h"
#include "backend/cpu/product_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace patina::cpu::HWY_NAMESPACE {

// Asks for rows [begin, end) of a panel of A, into the second level: the first holds the panel in use.
inline void prefetch_rows(const float* from, int64_t stride, int64_t begin, int64_t end, int64_t depth) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t k = 0; k < depth; k += 16) __builtin_prefetch(from + r * stride + k, 0, 2);
}

// What a worker does at a time: some columns of C, in some of its rows, which are cut into panels of `panel_rows`.
struct Task {
  int64_t n0, columns, first_row, last_row, panel_rows;
};
struct Buffers {
  float *packed_b, *packed_a, *decoded;
};

// Adds a term to the task's part of C.
template <Panel kPanel>
HWY_INLINE void run_term(const ProductJob& job, const TermJob& term, const Task& task, bool load_first,
                         const Buffers& buffers) {
  const LeftOperand& a = term.a;
  const bool in_place = readable_in_place(a);
  const int64_t block_rows = kPanel == Panel::kRows ? task.panel_rows : kColumnPanels * task.panel_rows;
  for (int64_t k0 = 0; k0 < term.k; k0 += term.pass_k) {
    const int64_t depth = std::min(term.pass_k, term.k - k0);
    const bool load = load_first || k0 > 0;
    pack_right(term.b, term.decode, k0, depth, task.n0, task.columns, buffers.packed_b, buffers.decoded);
    // One panel of A against the chunk of B, while the next rows of A, `next_rows` of them, come nearer.
    const auto multiply = [&](const float* panel, int64_t stride, int64_t row, int64_t rows,
                              int64_t next_rows) HWY_ATTR {
      float* const c = job.c + row * job.c_stride + task.n0;
      for (int64_t j = 0; j < task.columns; j += kTileColumns) {
        const int64_t end = std::min(j + kTileColumns, task.columns);
        prefetch_rows(panel + rows * stride, stride, j * next_rows / task.columns, end * next_rows / task.columns,
                      depth);
        tile<kPanel>(depth, panel, stride, buffers.packed_b + j * depth, c + j, job.c_stride, rows, end - j, load);
      }
    };
    for (int64_t row = task.first_row; row < task.last_row; row += block_rows) {
      const int64_t rows = std::min(block_rows, task.last_row - row);
      if constexpr (kPanel == Panel::kColumns) {
        pack_columns(a, row, rows, task.panel_rows, k0, depth, buffers.packed_a);
        for (int64_t r = 0; r < rows; r += task.panel_rows)
          multiply(buffers.packed_a + r / task.panel_rows * kColumnPanel, 0, row + r,
                   std::min(task.panel_rows, rows - r), 0);
      } else if (in_place && rows % kRowStep == 0) {
        multiply(a.data + row * a.row_stride + k0, a.row_stride, row, rows,
                 std::min(block_rows, task.last_row - row - rows));
      } else {
        pack_rows(a, row, rows, k0, depth, buffers.packed_a);
        multiply(buffers.packed_a, kPanelStride, row, rows, 0);
      }
    }
  }
}

void run_product(const ProductJob& job, int worker) {
  const ProductBuffers sizes(job.n, job.longest_k);
  float* const memory = job.buffers + sizes.total() * worker;
  const Buffers buffers{memory, memory + sizes.packed_b, memory + sizes.packed_b + sizes.packed_a};
  // Panels of even height, in whole row steps. Where the columns give too few tasks, rows are split too.
  const int64_t panel_rows = round_up(divide_up(job.m, divide_up(job.m, kTileRows)), kRowStep);
  const int64_t panels = divide_up(job.m, panel_rows);
  const int64_t groups = std::min(panels, job.chunks >= job.threads ? 1 : divide_up(2 * job.threads, job.chunks));
  TaskQueue queue(job, worker, job.chunks * groups);
  for (int64_t index; (index = queue.next()) >= 0;) {
    const int64_t n0 = index / groups * job.chunk_n, group = index % groups;
    const Task task{n0, std::min(job.chunk_n, job.n - n0), group * panels / groups * panel_rows,
                    std::min(job.m, (group + 1) * panels / groups * panel_rows), panel_rows};
    for (int i = 0; i < job.count; ++i) {
      const TermJob& term = job.terms[i];
      if (panel_of(term.a) == Panel::kRows)
        run_term<Panel::kRows>(job, term, task, job.accumulate || i > 0, buffers);
      else
        run_term<Panel::kColumns>(job, term, task, job.accumulate || i > 0, buffers);
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

int64_t product_scratch_bytes(int64_t n, int64_t k, int threads) {
  return threads * (static_cast<int64_t>(sizeof(TaskCounter)) +
                    ProductBuffers(n, k).total() * static_cast<int64_t>(sizeof(float)));
}

void product(int64_t m, int64_t n, std::span<const ProductTerm> terms, float* c, int64_t c_stride, bool accumulate,
             ThreadPool& pool, std::span<std::byte> scratch) {
  if (m == 0 || n == 0) return;
  ProductJob job{};
  job.m = m;
  job.n = n;
  job.c = c;
  job.c_stride = c_stride;
  job.accumulate = accumulate;
  int64_t all_k = 0;
  int64_t align =
      HWY_DYNAMIC_DISPATCH(tile_columns)();  // of chunks: whole tiles, and whole blocks where they lie along N
  PATINA_CHECK(terms.size() <= kMaxTerms, "{} terms", terms.size());
  for (const ProductTerm& term : terms) {
    if (term.k == 0) continue;
    TermJob& added = job.terms[job.count++];
    static_cast<ProductTerm&>(added) = term;
    int64_t block_along_k = 1;
    if (const Tensor* const weight = term.b.weight; weight != nullptr) {
      added.decode = decode_row(weight->dtype);
      const int64_t block = info(weight->dtype).block_values;
      if (term.b.transposed)
        block_along_k = block;
      else
        align = std::lcm(align, block);
    }
    // Passes of equal depth, cut between stored blocks.
    added.pass_k = round_up(divide_up(term.k, divide_up(term.k, kPassK)), block_along_k);
    job.longest_k = std::max(job.longest_k, term.k);
    all_k += term.k;
  }
  if (job.count == 0) {
    if (!accumulate)
      for (int64_t row = 0; row < m; ++row) std::fill_n(c + row * c_stride, n, 0.0f);
    return;
  }
  const int threads = m * n * all_k < 32 * 32 * 32 ? 1 : pool.size();
  PATINA_CHECK(static_cast<int64_t>(scratch.size()) >= product_scratch_bytes(n, job.longest_k, threads),
               "scratch {} for {}x{}x{}", scratch.size(), m, n, job.longest_k);
  job.threads = threads;

  // Chunks of columns so that the busiest worker has least: among the counts near the smallest.
  const int64_t widest = std::max(kChunkN / align, int64_t{1}) * align;
  const int64_t fewest = divide_up(n, widest);
  int64_t best_load = INT64_MAX;
  for (int64_t chunks = fewest; chunks <= fewest + 2 * threads; ++chunks) {
    const int64_t width = round_up(divide_up(n, chunks), align);
    if (width > widest) continue;
    const int64_t count = divide_up(n, width), load = divide_up(count, threads) * width;
    if (load < best_load) {
      best_load = load;
      job.chunk_n = width;
      job.chunks = count;
    }
  }

  job.counters = reinterpret_cast<TaskCounter*>(scratch.data());
  std::uninitialized_default_construct_n(job.counters, threads);
  job.buffers = reinterpret_cast<float*>(job.counters + threads);
  const auto run = HWY_DYNAMIC_DISPATCH(run_product);
  // Whoever comes takes part: a worker that has lost its core to another process is not waited for.
  pool.run(threads, [&](int64_t, int worker) { run(job, worker); });
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
