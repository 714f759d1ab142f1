// The blocked product behind every matrix product on the CPU: operands are packed into panels, and packing decodes a
// stored weight along either axis, so a transpose costs nothing and no F32 copy of a weight ever exists. Design notes:
// docs/kernels.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/threads.h"
#include "tensor/tensor.h"

namespace patina::cpu {

// A [M,K]: F32, any strides.
struct LeftOperand {
  const float* data;
  int64_t row_stride, column_stride;
};

// B [K,N]: either F32 numbers with any strides, or a frozen weight of any type.
struct RightOperand {
  // F32: element (k, n) is scale * data[k * row_stride + n * column_stride], rounded once, when packed.
  static RightOperand numbers(const float* data, int64_t row_stride, int64_t column_stride, float scale = 1.0f);
  // Frozen W: B = W^T (`transposed`, forward) or B = W (backward), of the rows from first_row on.
  static RightOperand frozen(const Tensor& weight, bool transposed, int64_t first_row = 0);

  const float* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
  float scale = 1.0f;
  const Tensor* weight = nullptr;
  bool transposed = false;
  int64_t first_row = 0;
};

struct ProductTerm {
  int64_t k;
  LeftOperand a;
  RightOperand b;
};
inline constexpr int kMaxTerms = 2;

// What C begins with, [M,N] with dense columns: zeros where there is no data. It may be C itself, and overlaps it
// nowhere else.
struct Addend {
  const float* data = nullptr;
  int64_t row_stride = 0;
};

// C [M,N] (rows `c_stride` apart) = acc + the sum of A [M,K] . B [K,N] over one or two terms. Every element is one
// chain of fused multiply-adds, term by term in order of k: the same bits for any blocking, number of threads and
// instruction set with FMA, and for two calls in place of two terms. C overlaps no operand.
void product(int64_t m, int64_t n, std::span<const ProductTerm> terms, const Addend& acc, float* c, int64_t c_stride,
             ThreadPool& pool, std::span<std::byte> scratch);
inline void product(int64_t m, int64_t n, int64_t k, const LeftOperand& a, const RightOperand& b, const Addend& acc,
                    float* c, int64_t c_stride, ThreadPool& pool, std::span<std::byte> scratch) {
  const ProductTerm term{k, a, b};
  product(m, n, {&term, 1}, acc, c, c_stride, pool, scratch);
}

// Scratch of product() for B [k,n] of at most these sizes and any A: packed panels only, under 1 MiB a thread.
int64_t product_scratch_bytes(int64_t n, int64_t k, int threads);

// y [M,N] = acc + x [M,K] . W^T for M < 8, bound by reading W once: each row of W is decoded once and met by every row
// of x. Sums run in 16 fixed partial sums, combined in a fixed tree. x has dense columns; acc is optional and may be y.
void few_row_product(const Tensor& x, const Tensor& weight, const Tensor& acc, const Tensor& y, ThreadPool& pool);

inline constexpr int64_t kFewRows = 8;  // fewer than this many rows take few_row_product where an op allows it

}  // namespace patina::cpu
