#include "adapter/parameters.h"

namespace patina {
namespace {

constexpr int64_t kAlignment = 16;  // floats

}  // namespace

size_t ParameterStore::add(std::string name, const Shape& shape) {
  PATINA_CHECK(values_.empty(), "{} is added after allocate()", name);
  const int64_t elements = shape.elements();
  PATINA_CHECK(elements > 0, "{} {}", name, shape.str());
  slices_.push_back({std::move(name), shape, floats_});
  floats_ += (elements + kAlignment - 1) / kAlignment * kAlignment;
  return slices_.size() - 1;
}

void ParameterStore::allocate() {
  PATINA_CHECK(values_.empty(), "allocated twice");
  values_.resize(static_cast<size_t>(floats_));
}

void ParameterStore::free_gradients() { std::vector<float>().swap(gradients_); }

void ParameterStore::allocate_gradients() {
  PATINA_CHECK(static_cast<int64_t>(values_.size()) == floats_, "gradients before values");
  gradients_.resize(static_cast<size_t>(floats_));
}

float* ParameterStore::gradient(size_t slice) {
  PATINA_CHECK(gradients_.size() == values_.size(), "{} has no gradient yet", slices_.at(slice).name);
  return gradients_.data() + slices_.at(slice).offset;
}

int64_t ParameterStore::parameters() const {
  int64_t count = 0;
  for (const Slice& slice : slices_) count += slice.shape.elements();
  return count;
}

}  // namespace patina
