#include "tensor/tensor.h"

#include <algorithm>

namespace patina {
namespace {

int64_t multiply(int64_t a, int64_t b, const Shape& shape) {
  int64_t product;
  PATINA_CHECK(!__builtin_mul_overflow(a, b, &product), "shape {} has more elements than 64 bits count", shape.str());
  return product;
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  PATINA_CHECK(dims.size() <= size_t{kMaxRank}, "{} dimensions, at most {} are possible", dims.size(), kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

int64_t Shape::elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims()) {
    PATINA_CHECK(dim >= 0, "shape {}", str());
    count = multiply(count, dim, *this);
  }
  return count;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(dims(), other.dims()); }

std::string Shape::str() const {
  std::string text = "[";
  for (const int64_t dim : dims()) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    if (axis > 0) stride = multiply(stride, shape[axis], shape);
  }
  return strides;
}

Tensor dense(void* data, DType dtype, const Shape& shape) {
  const int64_t block = info(dtype).block_values;
  PATINA_CHECK(block == 1 || (shape.rank() == 2 && shape[1] % block == 0),
               "shape {} of {}, expected [rows, columns] with columns a multiple of {}", shape.str(), name(dtype),
               block);
  return {.data = data, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape)};
}

}  // namespace patina
