#include "ops/attention.h"

namespace patina {

namespace {

std::string print(const AttentionSpec& spec) {
  const char* mask = spec.mask == AttentionSpec::Mask::kNone     ? "none"
                     : spec.mask == AttentionSpec::Mask::kCausal ? "causal"
                                                                 : "window";
  return fmt::format("H={},G={},C={},mask={}{},scale={}", spec.heads, spec.kv_heads, spec.width, mask,
                     spec.mask == AttentionSpec::Mask::kWindow ? std::to_string(spec.window) : "", spec.scale);
}

}  // namespace

std::string Attention::attributes() const { return print(spec); }
std::string AttentionGrad::attributes() const { return print(spec); }

void Attention::gradient(GradientBuilder& builder, const Node& node) const {
  const ValueId q = node.inputs[0], k = node.inputs[1], v = node.inputs[2];
  if (!builder.wants(q) && !builder.wants(k) && !builder.wants(v)) return;
  Graph& graph = builder.graph();
  std::vector<ValueId> inputs = node.inputs;
  inputs.insert(inputs.end(), {node.outputs[0], node.outputs[1], builder.dy(node.outputs[0])});
  const std::vector<ValueId> grads =
      graph.node(std::make_shared<AttentionGrad>(spec), inputs,
                 {graph.value(q).extents, graph.value(k).extents, graph.value(v).extents}, node.label);
  for (size_t i = 0; i < 3; ++i)
    if (builder.wants(node.inputs[i])) builder.contribute(node.inputs[i], grads[i]);
}

ValueId attention(Graph& graph, ValueId q, ValueId k, ValueId v, const SequenceInputs& sequences,
                  const AttentionSpec& spec, std::string_view label) {
  const Shape query = graph.maximum_shape(q), key = graph.maximum_shape(k), value = graph.maximum_shape(v);
  PATINA_CHECK(spec.heads % spec.kv_heads == 0 && query[1] == spec.heads * spec.width &&
                   key[1] == spec.kv_heads * spec.width && key == value,
               "{}: q {} k {} v {} H {} G {} C {}", label, query.str(), key.str(), value.str(), spec.heads,
               spec.kv_heads, spec.width);
  return graph.node(std::make_shared<Attention>(spec),
                    {q, k, v, sequences.q_offsets, sequences.kv_offsets, sequences.first},
                    {graph.value(q).extents, {graph.value(q).extents[0], spec.heads}}, label)[0];
}

}  // namespace patina
