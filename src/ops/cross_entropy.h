// Cross-entropy of whole logits: for a head that an adapter changes (ops/head_loss.h is for one that is frozen).
#pragma once

#include "ir/graph.h"

namespace patina {

// logits [M,V], labels [M] int32. loss [1] = acc + sum_m (lse_m - logits_m,label) in nats; lse [M] = log sum_v
// exp(logits_mv), saved. acc [1] is optional. M may be 0.
struct CrossEntropy : Op {
  std::string_view name() const override { return "cross_entropy"; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
};
// (logits, labels, lse, dloss [1]) -> dlogits [M,V] = dloss * (exp(logits - lse) - onehot(labels)). May work in place.
struct CrossEntropyGrad : Op {
  std::string_view name() const override { return "cross_entropy_grad"; }
  int in_place_input() const override { return 0; }
};
// Returns the loss.
ValueId cross_entropy(Graph& graph, ValueId logits, ValueId labels, ValueId acc, std::string_view label);

}  // namespace patina
