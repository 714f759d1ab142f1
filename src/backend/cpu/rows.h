// What kernels that go row by row share: access to rows, and how rows are split over threads.
#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "tensor/tensor.h"

namespace patina::cpu {

// The rows of an F32 tensor of rank 1 or 2 with dense columns; a vector [n] is one row.
struct Rows {
  explicit Rows(const Tensor& tensor)
      : data(tensor.f32()),
        rows(tensor.shape.rank() == 2 ? tensor.shape[0] : 1),
        columns(tensor.shape[tensor.shape.rank() - 1]),
        stride(tensor.shape.rank() == 2 ? tensor.strides[0] : 0) {
    const int last = tensor.shape.rank() - 1;
    PATINA_CHECK(last <= 1 && (columns <= 1 || tensor.strides[last] == 1), "shape {} strides {}", tensor.shape.str(),
                 tensor.strides.str());
  }
  float* row(int64_t r) const { return data + r * stride; }

  float* data;
  int64_t rows, columns, stride;
};

// Calls body(row) for rows [0, rows), over the threads where there is enough to do: a task gets about 16 Ki values,
// some microseconds of work, where waking a thread costs about as much.
template <typename Body>
void for_rows(ThreadPool& pool, int64_t rows, int64_t columns, Body body) {
  constexpr int64_t kTaskValues = 16384;
  const int64_t task_rows = std::max<int64_t>(1, kTaskValues / std::max<int64_t>(1, columns));
  pool.run((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * task_rows);
    for (int64_t r = task * task_rows; r < end; ++r) body(r);
  });
}

// Calls body(begin, end) for rows [0, rows), each of which looks up a row of a frozen weight: for all at once or, where
// weights are streamed, for a few at a time.
template <typename Body>
void lookups(const KernelContext& context, int64_t rows, Body body) {
  if (context.progress == nullptr) return body(int64_t{0}, rows);
  for (int64_t begin = 0; begin < rows; begin += kLookupRows) {
    body(begin, std::min(rows, begin + kLookupRows));
    context.progress->looked_up();
  }
}

// Where sums over rows are made in parallel: rows that are summed in one go, before the runs are. Part of the result's
// definition, whatever the threads.
inline constexpr int64_t kRunRows = 64;
inline int64_t runs_of(int64_t rows) { return (rows + kRunRows - 1) / kRunRows; }

// Element i of an int32 vector that selects one of `limit` rows.
inline int64_t row_index(const Tensor& indices, int64_t i, int64_t limit) {
  const int64_t index = indices.i32()[i * indices.strides[0]];
  PATINA_CHECK(index >= 0 && index < limit, "row {} of {}", index, limit);
  return index;
}

}  // namespace patina::cpu
