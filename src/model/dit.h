// The ACE-Step 1.5 diffusion transformer, written once as graph-building code: the velocity of latents, and the loss of
// flow matching over songs laid end to end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/adapter.h"
#include "graph/differentiate.h"
#include "graph/recompute.h"
#include "ir/graph.h"
#include "model/dit_model.h"

namespace patina {

// Symbols in this order: T tokens (patches of P frames), E conditioning tokens, B+1 offsets, B songs. A row of `input`,
// `target` and `weight` is a patch: channel by channel, the P frames of each; of the input the context's channels come
// first.
struct FlowGraph {
  Graph graph;
  ValueId input;                                // [T, in_channels * P]
  ValueId conditioning;                         // [E, encoder_width]
  ValueId times, differences;                   // [B, 256] sinusoids of t and of t - r (time_sinusoid)
  ValueId positions, songs;                     // [T] int32: the patch within its song, and which song
  ValueId offsets, conditioning_offsets;        // [B+1]
  ValueId first;                                // [B], zeros
  ValueId target, weight;                       // [T, latents * P]
  ValueId samples = kNoValue, step = kNoValue;  // [T], [1]: which sample, which optimizer step; where there is dropout
  ValueId conditioning_samples = kNoValue, conditioning_positions = kNoValue;  // [E]: the same of the conditioning
  ValueId hidden;                                                              // [T,D] after the last norm
  ValueId velocity;                                                            // [T, latents * P]
  ValueId loss;                   // [1] sum of weight * (velocity - target)^2
  ValueId losses;                 // [T] its rows
  std::vector<NodeRange> layers;  // nodes of each layer
  int repeated_nodes = 0;         // forward nodes that run again in backward
  Differentiation gradients;      // seed: bound by the caller; empty without gradient
  std::vector<float> rope;        // the table that the graph reads

  static std::vector<int64_t> sizes(int64_t tokens, int64_t conditioning, int64_t songs) {
    return {tokens, conditioning, songs + 1, songs};
  }
};

struct FlowLimits {
  int64_t tokens;        // T at most
  int64_t conditioning;  // E at most
  int64_t songs;         // B at most
  int64_t positions;     // patches of the longest song
};

// With an adapter and `gradients`, gradients of its parameters are accumulated into its store, and its dropout draws.
// Without gradients the velocity is an output too.
std::unique_ptr<FlowGraph> build_flow_graph(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
                                            const std::optional<GradientOptions>& gradients);

// The two halves of build_flow_graph(), for who has more to add to the loss: the first builds the forward part, up to
// `loss`, which may then become another; the second all that follows. `trained`: gradients will be wanted.
std::unique_ptr<FlowGraph> begin_flow_graph(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
                                            bool trained);
void finish_flow_graph(FlowGraph& flow, Adapter* adapter, const std::optional<GradientOptions>& gradients);

// What the time embedding reads of t in [0, 1]: 128 cosines, then 128 sines, of 1000 t / 10000^(i/128).
void time_sinusoid(double t, float* out);

}  // namespace patina
