// Runs a graph with the reference implementations in any scalar type: the oracle of tests and of the self-test. Slow
// and simple: every value has memory of its own.
#pragma once

#include <map>
#include <vector>

#include "ops/reference.h"
#include "quant/decode.h"

namespace patina {

template <typename S>
class ReferenceExecutor {
 public:
  explicit ReferenceExecutor(const Graph& graph) : graph_(graph) {}

  // Runs nodes [0, nodes) (all where negative). Frozen, trainable, state and input values are read from graph data or
  // from bind().
  void run(const std::vector<int64_t>& sizes, int nodes = -1);

  // External F32 or int32 numbers, read at the start of run().
  void bind(ValueId id, const void* data) { bound_[id] = data; }
  // Replaces one element of an external F32 value for the next runs (element index in its storage): where a complex
  // step goes.
  void poke(ValueId id, int64_t element, S value) { pokes_[{id, element}] = value; }
  void clear_pokes() { pokes_.clear(); }

  RefTensor<S> tensor(ValueId id) const;

 private:
  void load_external(ValueId id);

  const Graph& graph_;
  std::map<ValueId, const void*> bound_;
  std::map<std::pair<ValueId, int64_t>, S> pokes_;
  std::vector<std::vector<S>> numbers_;  // per value that owns storage
  std::vector<std::vector<int32_t>> ints_;
  std::vector<ValueId> storage_;  // state values are written through
  std::vector<Shape> shapes_;
};

template <typename S>
void ReferenceExecutor<S>::load_external(ValueId id) {
  const Value& value = graph_.value(id);
  const auto found = bound_.find(id);
  const void* data = found != bound_.end() ? found->second : value.data;
  PATINA_CHECK(data != nullptr, "{} is not bound", value.name);
  const Shape& shape = shapes_[static_cast<size_t>(id)];
  const int64_t elements = shape.elements();
  if (value.dtype == DType::kI32) {
    const int32_t* ints = static_cast<const int32_t*>(data);
    ints_[static_cast<size_t>(id)].assign(ints, ints + elements);
    return;
  }
  std::vector<float> decoded(static_cast<size_t>(elements));
  if (shape.rank() == 2) {
    Tensor tensor = dense(const_cast<void*>(data), value.dtype, shape);
    tensor.row_map = value.row_map;
    for (int64_t r = 0; r < shape[0]; ++r)
      decode_row(value.dtype)(tensor.row(r), 0, shape[1], decoded.data() + r * shape[1]);
  } else {
    decode_row(value.dtype)(data, 0, elements, decoded.data());
  }
  numbers_[static_cast<size_t>(id)].assign(decoded.begin(), decoded.end());
}

template <typename S>
void ReferenceExecutor<S>::run(const std::vector<int64_t>& sizes, int nodes) {
  const size_t values = static_cast<size_t>(graph_.values());
  numbers_.assign(values, {});
  ints_.assign(values, {});
  shapes_.resize(values);
  storage_.resize(values);
  for (size_t v = 0; v < values; ++v) {
    const ValueId id = static_cast<ValueId>(v);
    shapes_[v] = graph_.shape(id, sizes);
    storage_[v] = graph_.storage(id);
  }
  const size_t count = nodes < 0 ? graph_.nodes().size() : static_cast<size_t>(nodes);
  std::vector<uint8_t> loaded(values, 0);
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph_.nodes()[i];
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      const ValueId root = storage_[static_cast<size_t>(input)];
      if (graph_.value(root).kind == ValueKind::kComputed || loaded[static_cast<size_t>(root)] != 0) continue;
      load_external(root);
      loaded[static_cast<size_t>(root)] = 1;
    }
  }
  for (const auto& [where, value] : pokes_)
    if (loaded[static_cast<size_t>(where.first)] != 0)
      numbers_[static_cast<size_t>(where.first)].at(static_cast<size_t>(where.second)) = value;

  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op->name() == "view") continue;
    const int which = node.op->in_place_input();
    for (const ValueId output : node.outputs) {
      const ValueId input =
          which >= 0 && output == node.outputs[0] ? node.inputs[static_cast<size_t>(which)] : kNoValue;
      if (input != kNoValue && graph_.value(storage_[static_cast<size_t>(input)]).kind == ValueKind::kState) {
        const ValueId taken = storage_[static_cast<size_t>(output)];
        for (ValueId& storage : storage_)
          if (storage == taken) storage = storage_[static_cast<size_t>(input)];
      } else {
        numbers_[static_cast<size_t>(output)].assign(
            static_cast<size_t>(shapes_[static_cast<size_t>(output)].elements()), S(0));
      }
    }
    std::vector<RefTensor<S>> in, out;
    for (const ValueId input : node.inputs) in.push_back(input == kNoValue ? RefTensor<S>{} : tensor(input));
    for (const ValueId output : node.outputs) out.push_back(tensor(output));
    reference_kernel<S>(node.op->name())(*node.op, in, out);
  }
}

template <typename S>
RefTensor<S> ReferenceExecutor<S>::tensor(ValueId id) const {
  const Value& value = graph_.value(id);
  const size_t root = static_cast<size_t>(storage_[static_cast<size_t>(id)]);
  RefTensor<S> tensor;
  tensor.shape = shapes_[static_cast<size_t>(id)];
  tensor.strides = value.strides;
  if (value.dtype == DType::kI32)
    tensor.ints = ints_[root].data() + value.offset;
  else
    tensor.data = const_cast<S*>(numbers_[root].data()) + value.offset;
  return tensor;
}

}  // namespace patina
