#include "ir/graph.h"

#include <algorithm>
#include <iterator>

namespace patina {

void Op::gradient(GradientBuilder&, const Node& node) const {
  PATINA_CHECK(false, "op {} at {} has no gradient", name(), node.label);
}

Extent Graph::symbol(std::string_view name, int64_t maximum) {
  PATINA_CHECK(maximum > 0, "symbol {} maximum {}", name, maximum);
  symbols_.emplace_back(name);
  symbol_maxima_.push_back(maximum);
  return {maximum, symbols() - 1};
}

ValueId Graph::add(Value value) {
  for (size_t axis = 1; axis < value.extents.size(); ++axis)
    PATINA_CHECK(value.extents[axis].symbol < 0 || value.view_of != kNoValue, "{}: inner extent {} is symbolic",
                 value.name, axis);
  values_.push_back(std::move(value));
  return values() - 1;
}

namespace {

Shape shape_of(const Extents& extents) {
  PATINA_CHECK(extents.size() <= static_cast<size_t>(kMaxRank), "rank {}", extents.size());
  std::array<int64_t, kMaxRank> dims{};
  for (size_t axis = 0; axis < extents.size(); ++axis) dims[axis] = extents[axis].size;
  return Shape(std::span<const int64_t>(dims.data(), extents.size()));
}

Value external(std::string name, ValueKind kind, DType dtype, Extents extents, void* data) {
  Value value;
  value.name = std::move(name);
  value.kind = kind;
  value.dtype = dtype;
  value.strides = contiguous_strides(shape_of(extents));
  value.extents = std::move(extents);
  value.data = data;
  return value;
}

Extents extents_of(const Shape& shape) {
  Extents extents;
  for (int64_t dim : shape.dims()) extents.emplace_back(dim);
  return extents;
}

}  // namespace

ValueId Graph::input(std::string name, DType dtype, Extents extents) {
  return add(external(std::move(name), ValueKind::kInput, dtype, std::move(extents), nullptr));
}

ValueId Graph::frozen(std::string name, const Tensor& weight) {
  Value value = external(std::move(name), ValueKind::kFrozen, weight.dtype, extents_of(weight.shape), weight.data);
  value.row_map = weight.row_map;
  return add(std::move(value));
}

ValueId Graph::trainable(std::string name, const Shape& shape, float* data) {
  return add(external(std::move(name), ValueKind::kTrainable, DType::kF32, extents_of(shape), data));
}

ValueId Graph::state(std::string name, DType dtype, Extents extents, void* data) {
  return add(external(std::move(name), ValueKind::kState, dtype, std::move(extents), data));
}

std::vector<ValueId> Graph::node(std::shared_ptr<const Op> op, std::vector<ValueId> inputs,
                                 std::vector<Extents> outputs, std::string_view label, DType dtype) {
  Node node{std::move(op), std::move(inputs), {}, std::string(label)};
  for (size_t i = 0; i < outputs.size(); ++i) {
    Value value;
    value.name = outputs.size() == 1 ? fmt::format("{}.{}", label, node.op->name())
                                     : fmt::format("{}.{}.{}", label, node.op->name(), i);
    value.dtype = dtype;
    value.strides = contiguous_strides(shape_of(outputs[i]));
    value.extents = std::move(outputs[i]);
    value.producer = static_cast<int>(nodes_.size());
    node.outputs.push_back(add(std::move(value)));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

ValueId Graph::view_node(std::shared_ptr<const Op> op, ValueId input, Extents extents, const Shape& strides,
                         int64_t offset, std::string_view label) {
  Value view;
  view.name = fmt::format("{}.{}", label, op->name());
  view.dtype = value(input).dtype;
  view.extents = std::move(extents);
  view.strides = strides;
  view.view_of = storage(input);
  view.offset = value(input).offset + offset;
  view.producer = static_cast<int>(nodes_.size());
  const ValueId id = add(std::move(view));
  nodes_.push_back({std::move(op), {input}, {id}, std::string(label)});
  return id;
}

std::vector<ValueId> Graph::repeat(int node, std::vector<ValueId> inputs) {
  const Node first = nodes_.at(static_cast<size_t>(node));
  Node again{first.op, std::move(inputs), {}, first.label, true};
  for (const ValueId output : first.outputs) {
    Value copy = value(output);
    copy.producer = static_cast<int>(nodes_.size());
    if (copy.view_of != kNoValue) {
      copy.view_of = storage(again.inputs[0]);
      copy.offset += value(again.inputs[0]).offset - value(first.inputs[0]).offset;
    }
    again.outputs.push_back(add(std::move(copy)));
  }
  nodes_.push_back(std::move(again));
  return nodes_.back().outputs;
}

void Graph::replace_input(int node, ValueId from, ValueId to) {
  std::ranges::replace(nodes_.at(static_cast<size_t>(node)).inputs, from, to);
}

void Graph::replace(int node, std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::string label) {
  Node& changed = nodes_.at(static_cast<size_t>(node));
  changed.op = std::move(op);
  changed.inputs = std::move(inputs);
  changed.label = std::move(label);
}

void Graph::reorder(const std::vector<int>& order) {
  for (const Node& node : nodes_)
    for (const ValueId output : node.outputs) value(output).producer = -1;
  std::vector<Node> nodes;
  for (const int index : order) {
    for (const ValueId output : nodes_.at(static_cast<size_t>(index)).outputs)
      value(output).producer = static_cast<int>(nodes.size());
    nodes.push_back(std::move(nodes_[static_cast<size_t>(index)]));
  }
  nodes_ = std::move(nodes);
}

ValueId Graph::storage(ValueId id) const {
  while (value(id).view_of != kNoValue) id = value(id).view_of;
  return id;
}

Shape Graph::shape(ValueId id, std::span<const int64_t> sizes) const {
  Shape shape = maximum_shape(id);
  const Extents& extents = value(id).extents;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    if (const int symbol = extents[axis].symbol; symbol >= 0)
      shape[static_cast<int>(axis)] = extents[axis].size / symbol_maximum(symbol) * sizes[static_cast<size_t>(symbol)];
  return shape;
}

Shape Graph::maximum_shape(ValueId id) const { return shape_of(value(id).extents); }

int64_t Graph::maximum_bytes(ValueId id) const { return bytes_of(value(id).dtype, maximum_shape(id).elements()); }

std::string Graph::print() const {
  std::string text;
  const auto print_value = [&](ValueId id) {
    if (id == kNoValue) {
      text += "-";
      return;
    }
    fmt::format_to(std::back_inserter(text), "%{}{}[", id,
                   value(id).dtype == DType::kF32 ? std::string_view("") : patina::name(value(id).dtype));
    for (size_t axis = 0; axis < value(id).extents.size(); ++axis) {
      const Extent& extent = value(id).extents[axis];
      if (axis > 0) text += ",";
      text += extent.symbol >= 0 ? symbol_name(extent.symbol) : std::to_string(extent.size);
    }
    text += "]";
  };
  for (const Node& node : nodes_) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (i > 0) text += ", ";
      print_value(node.outputs[i]);
    }
    fmt::format_to(std::back_inserter(text), " = {}", node.op->name());
    if (const std::string attributes = node.op->attributes(); !attributes.empty()) text += "{" + attributes + "}";
    text += "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i > 0) text += ", ";
      print_value(node.inputs[i]);
    }
    text += ")  # " + node.label + "\n";
  }
  return text;
}

}  // namespace patina
