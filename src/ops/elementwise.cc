#include "ops/elementwise.h"

namespace patina {

namespace {

void check_same(const Graph& graph, ValueId a, ValueId b, std::string_view label) {
  PATINA_CHECK(graph.value(a).extents == graph.value(b).extents, "{}: {} and {}", label, graph.maximum_shape(a).str(),
               graph.maximum_shape(b).str());
}

}  // namespace

void Add::gradient(GradientBuilder& builder, const Node& node) const {
  for (const ValueId input : {node.inputs[0], node.inputs[1]})
    if (builder.wants(input)) builder.contribute(input, builder.dy(node.outputs[0]));
}

ValueId add(Graph& graph, ValueId a, ValueId b, std::string_view label) {
  check_same(graph, a, b, label);
  return graph.node(std::make_shared<Add>(), {a, b}, {graph.value(a).extents}, label)[0];
}

ValueId scale_by(Graph& graph, ValueId x, ValueId factor, std::string_view label) {
  PATINA_CHECK(graph.maximum_shape(factor) == Shape{1}, "{}: factor {}", label, graph.maximum_shape(factor).str());
  return graph.node(std::make_shared<ScaleBy>(), {x, factor}, {graph.value(x).extents}, label)[0];
}

void SwiGlu::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId gate = node.inputs[0], up = node.inputs[1];
  if (!builder.wants(gate) && !builder.wants(up)) return;
  Graph& graph = builder.graph();
  const Extents extents = graph.value(gate).extents;
  const std::vector<ValueId> grads = graph.node(std::make_shared<SwiGluGrad>(), {gate, up, builder.dy(node.outputs[0])},
                                                {extents, extents}, node.label);
  if (builder.wants(gate)) builder.contribute(gate, grads[0]);
  if (builder.wants(up)) builder.contribute(up, grads[1]);
}

ValueId swiglu(Graph& graph, ValueId gate, ValueId up, std::string_view label) {
  check_same(graph, gate, up, label);
  return graph.node(std::make_shared<SwiGlu>(), {gate, up}, {graph.value(gate).extents}, label)[0];
}

ValueId silu(Graph& graph, ValueId x, std::string_view label) {
  return graph.node(std::make_shared<Silu>(), {x}, {graph.value(x).extents}, label)[0];
}

ValueId repeat_row(Graph& graph, ValueId w, ValueId rows_like, std::string_view label) {
  const Extents extents = graph.value(w).extents;
  PATINA_CHECK(extents.size() == 1, "{}: w {}", label, graph.maximum_shape(w).str());
  return graph.node(std::make_shared<RepeatRow>(), {w, rows_like}, {{graph.value(rows_like).extents[0], extents[0]}},
                    label)[0];
}

void GatherRows::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId x = node.inputs[0];
  if (!builder.wants(x)) return;
  Graph& graph = builder.graph();
  builder.contribute(x, graph.node(std::make_shared<ScatterRows>(), {builder.dy(node.outputs[0]), node.inputs[1], x},
                                   {graph.value(x).extents}, node.label)[0]);
}

ValueId gather_rows(Graph& graph, ValueId x, ValueId rows, std::string_view label) {
  return graph.node(std::make_shared<GatherRows>(), {x, rows},
                    {{graph.value(rows).extents[0], graph.value(x).extents[1]}}, label)[0];
}

ValueId pad_columns(Graph& graph, ValueId x, int64_t first, int64_t columns, std::string_view label) {
  PATINA_CHECK(first + graph.maximum_shape(x)[1] <= columns, "{}: pad {} at {} to {}", label,
               graph.maximum_shape(x).str(), first, columns);
  return graph.node(std::make_shared<PadColumns>(first), {x}, {{graph.value(x).extents[0], columns}}, label)[0];
}

}  // namespace patina
