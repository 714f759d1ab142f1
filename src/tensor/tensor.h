// A view of numbers in memory: what kernels receive. Shapes and strides are outermost first, in elements.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/error.h"
#include "tensor/dtype.h"

namespace patina {

inline constexpr int kMaxRank = 4;

// Up to four dimensions, outermost first.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  int64_t elements() const;
  bool operator==(const Shape& other) const;
  std::string str() const;  // "[4, 576]"
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Row-major strides of a dense tensor.
Shape contiguous_strides(const Shape& shape);

// Not an owner. A block-quantised tensor is always [rows, columns] with dense rows.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;
  const int32_t* row_map = nullptr;  // frozen weights: row r of the tensor is stored row row_map[r]; null = identity

  bool present() const { return data != nullptr; }
  bool contiguous() const { return strides == contiguous_strides(shape); }
  float* f32() const {
    PATINA_CHECK(dtype == DType::kF32, "type {}", name(dtype));
    return static_cast<float*>(data);
  }
  int32_t* i32() const {
    PATINA_CHECK(dtype == DType::kI32, "type {}", name(dtype));
    return static_cast<int32_t*>(data);
  }
  // Address of stored row r of a [rows, columns] tensor of any type.
  const std::byte* row(int64_t r) const {
    if (row_map != nullptr) r = row_map[r];
    return static_cast<const std::byte*>(data) + bytes_of(dtype, strides[0]) * r;
  }
};

// A dense tensor over existing memory.
Tensor dense(void* data, DType dtype, const Shape& shape);

}  // namespace patina
