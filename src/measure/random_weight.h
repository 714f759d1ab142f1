// Random operands for measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/threads.h"
#include "tensor/tensor.h"

namespace patina {

// Memory for operands in huge pages, so that both sides of a comparison read from alike memory. Error(kMemory) where
// there is none.
class OperandMemory {
 public:
  OperandMemory() = default;
  explicit OperandMemory(int64_t bytes);
  OperandMemory(OperandMemory&& other) noexcept;
  OperandMemory& operator=(OperandMemory&& other) noexcept;
  ~OperandMemory();

  std::byte* data() const { return data_; }
  float* f32() const { return reinterpret_cast<float*>(data_); }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Standard normal numbers (drawn, at random, from a table of 2^16 of them) times `scale`.
OperandMemory random_floats(int64_t count, uint64_t seed, ThreadPool& pool, float scale = 1.0f);

// A stored weight W [rows,columns] of any decodable type. F32, F16 and BF16: normal numbers, rounded to nearest. Block
// types: random codes under scales that bring values to about 1. columns is a multiple of the type's block.
OperandMemory random_stored_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed, ThreadPool& pool);

// W [rows,columns] in F32.
OperandMemory decoded(const Tensor& weight, ThreadPool& pool);

// To BF16's 8 significant bits, F16's 11 or TF32's 11, to nearest, ties to even; kept as a float. Finite numbers within
// the type's normal range.
float rounded_to_bits(float value, int significant_bits);

}  // namespace patina
