// Products of the blocks of each row with a small matrix: what kron(w, I) does, without building it.
#pragma once

#include "ir/graph.h"

namespace patina {

// A row of x [T, m*C] is m blocks of C columns. Block i of y [T, l*C] is acc + the sum over p of w[i,p] * block p of x:
//   y[t, i*C + c] = acc[t, i*C + c] + sum_p w[i,p] * x[t, p*C + c]     w [l,m], or its transpose [m,l] (`transposed`)
// acc is optional and may share storage with y. Each output is one chain of fused multiply-adds along p, begun at acc,
// in order. Gradients: dx is the same op with the other transpose; dw is MixBlocksGrad.
struct MixBlocks : Op {
  explicit MixBlocks(bool w_is_transposed) : transposed(w_is_transposed) {}
  std::string_view name() const override { return "mix_blocks"; }
  std::string attributes() const override { return transposed ? "transposed" : ""; }
  int in_place_input() const override { return 2; }
  void gradient(GradientBuilder& builder, const Node& node) const override;

  bool transposed;
};

// (left [T, l*C], right [T, m*C], acc [l,m] or none) -> dw [l,m] = acc + the sum over t and c of left[t, i*C + c] *
// right[t, p*C + c]. Runs of tokens of a fixed length are summed apart and added in order: the same bits for any number
// of threads.
struct MixBlocksGrad : Op {
  std::string_view name() const override { return "mix_blocks_grad"; }
  int in_place_input() const override { return 2; }
};

ValueId mix_blocks(Graph& graph, ValueId x, ValueId w, ValueId acc, bool transposed, std::string_view label);

}  // namespace patina
