// Scaled dot-product attention over sequences laid end to end, with grouped heads. Memory is linear in T: probabilities
// are made tile by tile, and again in backward (Dao, arXiv 2307.08691).
#pragma once

#include "ir/graph.h"

namespace patina {

// The contract serves packed training sequences, the key-value cache, cross-attention and windows alike:
//   q [Tq, H*C], k and v [Tk, G*C] with H a multiple of G (query head h reads key head h / (H/G));
//   q_offsets, kv_offsets [B+1] int32: sequence b has query rows [q_offsets[b], q_offsets[b+1]) and key rows likewise;
//   first [B] int32: query i of a sequence has position first[b] + i, key j position j, within the sequence;
//   mask kNone: all keys; kCausal: key j where j <= position of the query; kWindow: |position - j| <= window.
// Outputs: o [Tq, H*C] = softmax(scale * q k^T) v, and lse [Tq, H] = log sum exp of the scaled, masked scores (saved).
// A query with no visible key gives o = 0, lse = -inf and no gradient.
struct AttentionSpec {
  enum class Mask : uint8_t { kNone, kCausal, kWindow };
  int64_t heads;     // H
  int64_t kv_heads;  // G
  int64_t width;     // C
  Mask mask;
  int64_t window = 0;  // kWindow
  float scale;
};

struct Attention : Op {
  explicit Attention(const AttentionSpec& attention) : spec(attention) {}
  std::string_view name() const override { return "attention"; }
  std::string attributes() const override;
  void gradient(GradientBuilder& builder, const Node& node) const override;
  AttentionSpec spec;
};

// (q, k, v, q_offsets, kv_offsets, first, o, lse, do) -> dq, dk, dv.
struct AttentionGrad : Op {
  explicit AttentionGrad(const AttentionSpec& attention) : spec(attention) {}
  std::string_view name() const override { return "attention_grad"; }
  std::string attributes() const override;
  AttentionSpec spec;
};

// The sequences of a run.
struct SequenceInputs {
  ValueId q_offsets, kv_offsets, first;
};

ValueId attention(Graph& graph, ValueId q, ValueId k, ValueId v, const SequenceInputs& sequences,
                  const AttentionSpec& spec, std::string_view label);

}  // namespace patina
