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
HWY_INLINE void run_term(const ProductJob& job, const TermJob& term, const Task& task, const Addend& begin,
                         const Buffers& buffers) {
  const LeftOperand& a = term.a;
  const bool in_place = readable_in_place(a);
  const int64_t block_rows = kPanel == Panel::kRows ? task.panel_rows : kColumnPanels * task.panel_rows;
  for (int64_t k0 = 0; k0 < term.k; k0 += term.pass_k) {
    const int64_t depth = std::min(term.pass_k, term.k - k0);
    const Addend acc = k0 > 0 ? Addend{job.c, job.c_stride} : begin;
    pack_right(term.b, term.decode, k0, depth, task.n0, task.columns, buffers.packed_b, buffers.decoded);
    // One panel of A against the chunk of B, while the next rows of A, `next_rows` of them, come nearer.
    const auto multiply = [&](const float* panel, int64_t stride, int64_t row, int64_t rows,
                              int64_t next_rows) HWY_ATTR {
      float* const c = job.c + row * job.c_stride + task.n0;
      const float* const from = acc.data == nullptr ? nullptr : acc.data + row * acc.row_stride + task.n0;
      for (int64_t j = 0; j < task.columns; j += kTileColumns) {
        const int64_t end = std::min(j + kTileColumns, task.columns);
        prefetch_rows(panel + rows * stride, stride, j * next_rows / task.columns, end * next_rows / task.columns,
                      depth);
        tile<kPanel>(depth, panel, stride, buffers.packed_b + j * depth, from == nullptr ? nullptr : from + j,
                     acc.row_stride, c + j, job.c_stride, rows, end - j);
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

inline Buffers buffers_of(const ProductJob& job, int worker) {
  float* const memory = job.buffers + job.buffer_sizes.total() * worker;
  return {memory, memory + job.buffer_sizes.packed_b, memory + job.buffer_sizes.packed_b + job.buffer_sizes.packed_a};
}

// A product of at most kThinRows rows, whose A lies as columns: a gradient of a low-rank factor. B streams through the
// first level in pieces of kThinDepth x kTileColumns, asked for one piece ahead, while C, a chunk of it, stays near.
void run_thin_product(const ProductJob& job, int worker) {
  const Buffers buffers = buffers_of(job, worker);
  const TermJob& term = job.terms[0];
  const int64_t panel_rows = round_up(divide_up(job.m, divide_up(job.m, kTileRows)), kRowStep);
  float* const piece = buffers.packed_b;
  float* const turned = piece + kThinDepth * kTileColumns;  // C of a chunk, where C^T is written
  TaskQueue queue(job, worker, job.chunks);
  for (int64_t index; (index = queue.next()) >= 0;) {
    const int64_t n0 = index * job.chunk_n, columns = std::min(job.chunk_n, job.n - n0);
    Addend acc{job.acc.data == nullptr ? nullptr : job.acc.data + n0, job.acc.row_stride};
    float* c = job.c + n0;
    int64_t c_stride = job.c_stride;
    if (job.transposed_c) {
      c = turned;
      c_stride = columns;
      if (job.acc.data != nullptr) {
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t m = 0; m < job.m; ++m) c[m * columns + j] = job.acc.data[(n0 + j) * job.acc.row_stride + m];
        acc = {c, columns};
      }
    }
    for (int64_t k0 = 0; k0 < term.k; k0 += kPassK) {
      const int64_t pass = std::min(kPassK, term.k - k0);
      pack_columns(term.a, 0, job.m, panel_rows, k0, pass, buffers.packed_a);
      scale_all(job.a_scale, buffers.packed_a, divide_up(job.m, panel_rows) * kColumnPanel);
      for (int64_t k1 = 0; k1 < pass; k1 += kThinDepth) {
        const int64_t depth = std::min(kThinDepth, pass - k1);
        const float* const rows = term.b.data + (k0 + k1) * term.b.row_stride + n0;
        for (int64_t j = 0; j < columns; j += kTileColumns) {
          const int64_t width = std::min(kTileColumns, columns - j);
          const float* const next =
              j + kTileColumns < columns ? rows + j + kTileColumns : rows + kThinDepth * term.b.row_stride;
          if (j + kTileColumns < columns || k0 + k1 + kThinDepth + depth <= term.k)
            for (int64_t k = 0; k < depth; ++k)
              for (int64_t i = 0; i < kTileColumns; i += 16) __builtin_prefetch(next + k * term.b.row_stride + i);
          pack_right(term.b, term.decode, k0 + k1, depth, n0 + j, width, piece, buffers.decoded);
          for (int64_t row = 0; row < job.m; row += panel_rows)
            tile<Panel::kColumns>(depth, buffers.packed_a + row / panel_rows * kColumnPanel + k1 * kTileRows, 0, piece,
                                  acc.data == nullptr ? nullptr : acc.data + row * acc.row_stride + j, acc.row_stride,
                                  c + row * c_stride + j, c_stride, std::min(panel_rows, job.m - row), width);
        }
        acc = {c, c_stride};
      }
    }
    if (job.transposed_c)
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t m = 0; m < job.m; ++m) job.c[(n0 + j) * job.c_stride + m] = c[m * columns + j];
  }
}

void run_product(const ProductJob& job, int worker) {
  const Buffers buffers = buffers_of(job, worker);
  // Panels of even height, in whole row steps.
  const int64_t panel_rows = round_up(divide_up(job.m, divide_up(job.m, kTileRows)), kRowStep);
  const int64_t panels = divide_up(job.m, panel_rows);
  const int64_t groups = job.splits_rows ? std::min(panels, divide_up(4 * job.threads, job.chunks)) : 1;
  TaskQueue queue(job, worker, job.chunks * groups);
  for (int64_t index; (index = queue.next()) >= 0;) {
    const int64_t n0 = index / groups * job.chunk_n, group = index % groups;
    const Task task{n0, std::min(job.chunk_n, job.n - n0), group * panels / groups * panel_rows,
                    std::min(job.m, (group + 1) * panels / groups * panel_rows), panel_rows};
    for (int i = 0; i < job.count; ++i) {
      const TermJob& term = job.terms[i];
      const Addend begin = i > 0 ? Addend{job.c, job.c_stride} : job.acc;
      if (panel_of(term.a) == Panel::kRows)
        run_term<Panel::kRows>(job, term, task, begin, buffers);
      else
        run_term<Panel::kColumns>(job, term, task, begin, buffers);
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
HWY_EXPORT(run_thin_product);
HWY_EXPORT(tile_columns);
HWY_EXPORT(run_few_rows);

RightOperand RightOperand::numbers(const float* data, int64_t row_stride, int64_t column_stride, float scale) {
  RightOperand operand;
  operand.data = data;
  operand.row_stride = row_stride;
  operand.column_stride = column_stride;
  operand.scale = scale;
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

namespace {

// Whether one side has few rows, or columns, and lies so that run_thin_product can take the product: as it is, or,
// where the side is B, as C^T = B^T A^T.
void choose_thin(ProductJob& job) {
  TermJob& term = job.terms[0];
  const LeftOperand a = term.a;
  const RightOperand b = term.b;
  if (job.count != 1 || b.weight != nullptr || term.k < kThinRows * kChunkN / kMaxTileColumns + kThinDepth) return;
  if (job.m <= kThinRows && a.row_stride == 1 && b.column_stride == 1 && b.scale == 1.0f) {
    job.thin = true;
    job.a_scale = 1.0f;
  } else if (job.n <= kThinRows && job.m > job.n && a.row_stride == 1 && b.column_stride == 1) {
    job.thin = job.transposed_c = true;
    job.a_scale = b.scale;
    term.a = {b.data, 1, b.row_stride};
    term.b = RightOperand::numbers(a.data, a.column_stride, 1);
    std::swap(job.m, job.n);
  }
}

}  // namespace

void product(int64_t m, int64_t n, std::span<const ProductTerm> terms, const Addend& acc, float* c, int64_t c_stride,
             ThreadPool& pool, std::span<std::byte> scratch) {
  if (m == 0 || n == 0) return;
  ProductJob job{};
  job.m = m;
  job.n = n;
  job.acc = acc;
  job.c = c;
  job.c_stride = c_stride;
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
    for (int64_t row = 0; row < m; ++row)
      if (acc.data == nullptr)
        std::fill_n(c + row * c_stride, n, 0.0f);
      else if (acc.data != c)
        std::copy_n(acc.data + row * acc.row_stride, n, c + row * c_stride);
    return;
  }
  const int threads = m * n * all_k < 32 * 32 * 32 ? 1 : pool.size();
  PATINA_CHECK(static_cast<int64_t>(scratch.size()) >= product_scratch_bytes(n, job.longest_k, threads),
               "scratch {} for {}x{}x{}", scratch.size(), m, n, job.longest_k);
  job.threads = threads;
  job.buffer_sizes = ProductBuffers(n, job.longest_k);
  choose_thin(job);
  if (job.thin) align /= 2;  // all the splitting there is

  // Chunks of columns so that the busiest worker has least: among the counts near the smallest.
  const int64_t widest = std::max(kChunkN / align, int64_t{1}) * align;
  const int64_t fewest = divide_up(job.n, widest);
  int64_t best_load = INT64_MAX;
  for (int64_t chunks = fewest; chunks <= fewest + 2 * threads; ++chunks) {
    const int64_t width = round_up(divide_up(job.n, chunks), align);
    if (width > widest) continue;
    const int64_t count = divide_up(job.n, width), load = divide_up(count, threads) * width;
    if (load < best_load) {
      best_load = load;
      job.chunk_n = width;
      job.chunks = count;
    }
  }

  // Columns that cannot be shared out evenly: rows are.
  job.splits_rows = threads > 1 && 8 * threads * best_load > 9 * job.n;

  job.counters = reinterpret_cast<TaskCounter*>(scratch.data());
  std::uninitialized_default_construct_n(job.counters, threads);
  job.buffers = reinterpret_cast<float*>(job.counters + threads);
  const auto run = job.thin ? HWY_DYNAMIC_DISPATCH(run_thin_product) : HWY_DYNAMIC_DISPATCH(run_product);
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
