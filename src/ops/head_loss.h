// Output head and cross-entropy in one pass over the vocabulary; logits [M,V] never exist whole.
#pragma once

#include "ir/graph.h"

namespace patina {

// h [M,D] hidden states of the supervised rows, W [V,D] frozen head of any type, labels [M] int32.
//   loss [1] = sum_m (log sum_v exp(h_m . W_v) - h_m . W_label)   in nats; 0 where M is 0
//   dh [M,D] = d loss / dh = softmax(h W^T) W - W_label            (kept for backward; not computed without
//   with_gradient)
// Vocabulary panels run outermost with running maxima, as in an attention whose keys and values are W: each panel is
// decoded for all M rows and used for both products.
struct HeadLoss : Op {
  explicit HeadLoss(bool gradient_too) : with_gradient(gradient_too) {}
  std::string_view name() const override { return "head_loss"; }
  std::string attributes() const override { return with_gradient ? "with_gradient" : ""; }
  void gradient(GradientBuilder& builder, const Node& node) const override;
  bool with_gradient;
};

// Returns the loss.
ValueId head_loss(Graph& graph, ValueId h, ValueId weight, ValueId labels, bool with_gradient, std::string_view label);

}  // namespace patina
