#include "adapter/branch.h"

#include <algorithm>

namespace patina {

uint32_t stream_of(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

size_t Branch::add_slice(std::string_view name, const Shape& shape) {
  return store_.add(fmt::format("{}.{}", label(), name), shape);
}

void Branch::set_dropout(double probability, uint64_t seed) {
  dropout_ = probability;
  dropout_seed_ = seed;
}

ValueId Branch::input(Graph& graph, const FrozenProduct& product) const {
  if (dropout_ == 0.0 || !product.places) return product.x;
  return dropout(graph, product.x, *product.places, dropout_, dropout_seed_, stream_of(label()), product.label);
}

// A graph knows its trainables by where they lie, so nothing about graphs is remembered here.
ValueId Branch::trainable(Graph& graph, size_t slice) {
  float* const data = store_.value(slice);
  for (ValueId id = 0; id < graph.values(); ++id)
    if (graph.value(id).kind == ValueKind::kTrainable && graph.value(id).data == data) return id;
  const ParameterStore::Slice& where = store_.slices()[slice];
  return graph.trainable(where.name, where.shape, data);
}

std::vector<float> Branch::copy(size_t slice) const {
  const float* const values = store_.value(slice);
  return {values, values + store_.slices()[slice].shape.elements()};
}

void Branch::load_slice(size_t slice, std::span<const float> values) {
  PATINA_CHECK(static_cast<int64_t>(values.size()) == store_.slices()[slice].shape.elements(), "{}: {} numbers for {}",
               store_.slices()[slice].name, values.size(), store_.slices()[slice].shape.str());
  std::copy(values.begin(), values.end(), store_.value(slice));
}

}  // namespace patina
