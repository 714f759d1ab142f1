// The trainable parameters of a run: one flat F32 buffer, and one of the same layout for their gradients. A parameter
// is a named slice; clipping, the optimizer and checkpoints are single passes over the buffers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace patina {

class ParameterStore {
 public:
  struct Slice {
    std::string name;
    Shape shape;
    int64_t offset;  // in floats, a multiple of 16 (64 bytes)
  };

  // Registers a slice; all slices come before allocate(). Returns its index.
  size_t add(std::string name, const Shape& shape);
  // Allocates zeroed values, once.
  void allocate();
  // Allocates zeroed gradients where there are none yet: training only, so that inference holds the values alone.
  void allocate_gradients();
  void free_gradients();  // after training: an export copies the values

  std::span<const Slice> slices() const { return slices_; }
  std::span<float> values() { return values_; }  // whole buffer; gaps between slices stay zero
  std::span<const float> values() const { return values_; }
  std::span<float> gradients() { return gradients_; }  // empty before allocate_gradients()
  float* value(size_t slice) { return values_.data() + slices_.at(slice).offset; }
  const float* value(size_t slice) const { return values_.data() + slices_.at(slice).offset; }
  float* gradient(size_t slice);
  // Parameters, without the gaps.
  int64_t parameters() const;

 private:
  std::vector<Slice> slices_;
  std::vector<float> values_, gradients_;
  int64_t floats_ = 0;  // of the whole buffer
};

}  // namespace patina
