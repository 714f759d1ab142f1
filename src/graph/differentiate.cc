#include "graph/differentiate.h"

#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace patina {

namespace {

class Builder final : public GradientBuilder {
 public:
  Builder(Graph& graph, const std::map<ValueId, ValueId>& gradients_of, const std::vector<ValueId>& also,
          Formulation formulation, FormulationCounts& formulations)
      : graph_(graph),
        formulation_(formulation),
        formulations_(formulations),
        forward_values_(graph.values()),
        wanted_(static_cast<size_t>(graph.values()), 0) {
    for (const auto& [trainable, state] : gradients_of) {
      PATINA_CHECK(graph.value(trainable).kind == ValueKind::kTrainable && graph.value(state).kind == ValueKind::kState,
                   "{} and {}", graph.value(trainable).name, graph.value(state).name);
      wanted_[static_cast<size_t>(trainable)] = 1;
      gradient_[trainable] = state;
    }
    for (const ValueId id : also) wanted_[static_cast<size_t>(id)] = 1;
    for (const Node& node : graph.nodes())
      for (const ValueId input : node.inputs)
        if (wants(input))
          for (const ValueId output : node.outputs) wanted_[static_cast<size_t>(output)] = 1;
  }

  Graph& graph() override { return graph_; }
  ValueId dy(ValueId output) override { return so_far(output); }
  bool wants(ValueId input) override {
    return input != kNoValue && input < forward_values_ && wanted_[static_cast<size_t>(input)] != 0;
  }
  ValueId so_far(ValueId input) override {
    const auto found = gradient_.find(reshaped(input));
    return found == gradient_.end() ? kNoValue : in_shape_of(input, found->second);
  }
  void set_gradient(ValueId input, ValueId sum) override {
    PATINA_CHECK(wants(input), "gradient of {} is not wanted", graph_.value(input).name);
    PATINA_CHECK(graph_.value(sum).extents == graph_.value(input).extents, "gradient of {}: {} for {}",
                 graph_.value(input).name, graph_.maximum_shape(sum).str(), graph_.maximum_shape(input).str());
    const ValueId source = reshaped(input);
    gradient_[source] = in_shape_of(source, sum);
  }
  void contribute(ValueId input, ValueId part) override {
    if (part == kNoValue) return;
    const ValueId sum = so_far(input);
    set_gradient(input, sum == kNoValue ? part : add(graph_, sum, part, graph_.value(input).name));
  }
  Formulation formulation() const override { return formulation_; }
  FormulationCounts& formulations() override { return formulations_; }

  const std::map<ValueId, ValueId>& gradients() const { return gradient_; }

 private:
  // What a value is a dense reshape of, or itself. Both are the same numbers, so they have one gradient, kept in the
  // shape of the first: what a reader of the one adds goes on top of what readers of the other did.
  ValueId reshaped(ValueId id) const {
    for (int producer = graph_.value(id).producer; producer >= 0; producer = graph_.value(id).producer) {
      const Node& node = graph_.nodes()[static_cast<size_t>(producer)];
      const auto* const view = dynamic_cast<const View*>(node.op.get());
      if (view == nullptr || view->kind != View::Kind::kReshape) break;
      id = node.inputs[0];
    }
    return id;
  }
  ValueId in_shape_of(ValueId like, ValueId gradient) {
    const std::string label = graph_.value(like).name;
    if (graph_.value(gradient).extents == graph_.value(like).extents) return gradient;
    if (!graph_.contiguous(gradient)) gradient = dense_copy(graph_, gradient, label);
    return reshape(graph_, gradient, Extents(graph_.value(like).extents), label);
  }

  Graph& graph_;
  const Formulation formulation_;
  FormulationCounts& formulations_;
  const ValueId forward_values_;
  std::vector<uint8_t> wanted_;
  std::map<ValueId, ValueId> gradient_;
};

}  // namespace

Differentiation differentiate(Graph& graph, ValueId loss, const std::map<ValueId, ValueId>& gradients_of,
                              const std::vector<ValueId>& also, Formulation formulation) {
  PATINA_CHECK(graph.maximum_shape(loss) == Shape{1}, "loss {}", graph.maximum_shape(loss).str());
  Differentiation result;
  Builder builder(graph, gradients_of, also, formulation, result.formulations);
  PATINA_CHECK(builder.wants(loss), "the loss depends on nothing that is trained");
  result.seed = graph.input("dloss", DType::kF32, {1});
  builder.set_gradient(loss, result.seed);
  const int forward_nodes = static_cast<int>(graph.nodes().size());
  for (int i = forward_nodes - 1; i >= 0; --i) {
    const Node node = graph.nodes()[static_cast<size_t>(i)];  // a copy: rules append nodes
    bool wanted = false;
    for (const ValueId input : node.inputs) wanted = wanted || builder.wants(input);
    // An op with several outputs gets here when any of them has a gradient; the others are saved statistics.
    if (wanted && builder.dy(node.outputs[0]) != kNoValue) node.op->gradient(builder, node);
  }
  for (const auto& [trainable, state] : gradients_of) {
    const ValueId sum = builder.so_far(trainable);
    result.gradient[trainable] = sum;
    PATINA_CHECK(graph.storage(sum) == state || graph.value(sum).producer >= 0, "gradient of {}",
                 graph.value(trainable).name);
    graph.mark_output(sum);
  }
  for (const ValueId id : also) {
    const ValueId sum = builder.so_far(id);
    result.gradient[id] = sum;
    if (sum != kNoValue) graph.mark_output(sum);
  }
  return result;
}

}  // namespace patina
