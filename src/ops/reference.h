// Reference implementations: one plain function an op, templated on the scalar type. They are the specification. In
// double they check kernels; in complex<double> a step along the imaginary axis gives exact derivatives of a whole
// graph.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace patina {

// Numbers of type S (or int32 for index inputs) with real shapes and strides. Frozen weights arrive decoded and in
// row-map order.
template <typename S>
struct RefTensor {
  S* data = nullptr;
  const int32_t* ints = nullptr;
  Shape shape, strides;

  bool present() const { return data != nullptr || ints != nullptr; }
  S& at(int64_t i) const { return data[i * strides[0]]; }
  S& at(int64_t i, int64_t j) const {
    return shape.rank() == 1 ? data[j * strides[0]] : data[i * strides[0] + j * strides[1]];
  }
  // Element i of an int32 input that counts something: in [0, limit).
  int64_t index(int64_t i, int64_t limit) const {
    const int64_t number = ints[i * strides[0]];
    PATINA_CHECK(number >= 0 && number < limit, "index {} of {}", number, limit);
    return number;
  }
  // Where rows and columns are asked for, a vector is one row.
  int64_t rows() const { return shape.rank() == 1 ? 1 : shape[0]; }
  int64_t columns() const { return shape[shape.rank() - 1]; }
};

template <typename S>
using ReferenceKernel = void (*)(const Op& op, std::span<const RefTensor<S>> in, std::span<const RefTensor<S>> out);

// For S in {float, double, complex<double>}. InternalError where the op has no reference.
template <typename S>
ReferenceKernel<S> reference_kernel(std::string_view op);

}  // namespace patina
