#include "ops/frozen_linear.h"

#include "ops/copy.h"
#include "ops/outer_product.h"

namespace patina {

namespace {

// What `wanted` comes to for one node. Counts it, and why where it is another.
Formulation choose(Formulation wanted, const Graph& graph, ValueId dy, ValueId weight, FormulationCounts& counts) {
  Formulation chosen = wanted;
  if (wanted == Formulation::kMm && !can_copy_transposed(graph.value(weight).dtype)) {
    ++counts.quantised_weights;
    chosen = Formulation::kOutprod;
  } else if (wanted == Formulation::kMm && !graph.contiguous(dy)) {
    ++counts.strided_gradients;
    chosen = Formulation::kOutprod;
  }
  ++counts[chosen];
  return chosen;
}

}  // namespace

std::string FrozenLinear::attributes() const {
  std::string text(direction == Direction::kForward ? "forward" : "backward");
  if (few_rows) text += ",few_rows";
  if (branch)
    text += fmt::format(",branch={}{}{}", branch->scale, branch->transposed ? ",transposed" : "",
                        branch->first ? ",first" : "");
  return text;
}

void FrozenLinear::gradient(GradientBuilder& builder, const Node& node) const {
  PATINA_CHECK(!branch, "{}: branches are joined after differentiation", node.label);
  const ValueId x = node.inputs[0], acc = node.inputs[2], dy = builder.dy(node.outputs[0]);
  if (acc != kNoValue && builder.wants(acc)) builder.contribute(acc, dy);
  if (!builder.wants(x)) return;
  Graph& graph = builder.graph();
  const ValueId weight = node.inputs[1];
  if (direction == Direction::kBackward) {
    builder.set_gradient(x, frozen_linear(graph, dy, weight, builder.so_far(x), node.label));
    return;
  }
  const Formulation formulation = choose(builder.formulation(), graph, dy, weight, builder.formulations());
  builder.set_gradient(x, frozen_linear_gradient(graph, dy, weight, builder.so_far(x), node.label, formulation));
}

ValueId frozen_linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, std::string_view label, bool few_rows) {
  const Shape w = graph.maximum_shape(weight), in = graph.maximum_shape(x);
  PATINA_CHECK(w.rank() == 2 && in.rank() == 2 && in[1] == w[1], "{}: x {} W {}", label, in.str(), w.str());
  return graph.node(std::make_shared<FrozenLinear>(FrozenLinear::Direction::kForward, few_rows), {x, weight, acc},
                    {{graph.value(x).extents[0], w[0]}}, label)[0];
}

ValueId frozen_linear_backward(Graph& graph, ValueId dy, ValueId weight, ValueId acc, std::string_view label) {
  const Shape w = graph.maximum_shape(weight), in = graph.maximum_shape(dy);
  PATINA_CHECK(w.rank() == 2 && in.rank() == 2 && in[1] == w[0], "{}: dy {} W {}", label, in.str(), w.str());
  return graph.node(std::make_shared<FrozenLinear>(FrozenLinear::Direction::kBackward, false), {dy, weight, acc},
                    {{graph.value(dy).extents[0], w[1]}}, label)[0];
}

ValueId frozen_linear_gradient(Graph& graph, ValueId dy, ValueId weight, ValueId acc, std::string_view label,
                               Formulation formulation) {
  switch (formulation) {
    case Formulation::kFused:
      return frozen_linear_backward(graph, dy, weight, acc, label);
    case Formulation::kMm:
      PATINA_CHECK(graph.contiguous(dy), "{}: mm of a strided gradient", label);
      return frozen_linear(graph, dy, transposed_copy(graph, weight, label), acc, label);
    case Formulation::kOutprod: {
      const bool is_f32 = graph.value(weight).dtype == DType::kF32;
      return outer_product(graph, dy, is_f32 ? weight : f32_copy(graph, weight, label), acc, label);
    }
  }
  PATINA_CHECK(false, "formulation {}", static_cast<int>(formulation));
  return kNoValue;
}

}  // namespace patina
