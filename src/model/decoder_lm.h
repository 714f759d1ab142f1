// The decoder-only language model, written once as graph-building code; training, evaluation and generation build from
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/adapter.h"
#include "graph/differentiate.h"
#include "graph/recompute.h"
#include "ir/graph.h"
#include "model/decoder_model.h"
#include "ops/attention.h"

namespace patina {

// Inputs [M]: which of the T rows have a label, and which.
struct SupervisedRows {
  ValueId rows, labels;
};

// Loss over sequences laid end to end. Symbols in this order: T input tokens, B+1 offsets, B sequences, M supervised
// rows. Where an adapter changes the head, logits exist, so the supervised rows come in several portions, one symbol
// each: as many as sizes() says.
struct LossGraph {
  Graph graph;
  ValueId tokens, positions;  // [T]
  ValueId offsets, first;     // [B+1], [B]
  std::vector<SupervisedRows> supervised;
  ValueId samples = kNoValue, step = kNoValue;  // [T], [1]: which sample, which optimizer step; where there is dropout
  ValueId hidden;                               // [T,D] after the last norm
  ValueId loss;                                 // [1] sum of cross-entropy in nats over the M rows
  std::vector<NodeRange> layers, portions;      // nodes of each layer, and of each portion of supervised rows
  int repeated_nodes = 0;                       // forward nodes that run again in backward
  Differentiation gradients;                    // seed: bound by the caller; empty without gradient
  std::vector<float> rope;                      // the table that the graph reads

  // The symbols of a run over so many tokens, sequences and supervised rows: portions are filled in order.
  std::vector<int64_t> sizes(int64_t tokens, int64_t sequences, int64_t rows) const;
};

struct LossLimits {
  int64_t tokens;     // T at most
  int64_t sequences;  // B at most
  int64_t positions;  // longest sequence
};

// With an adapter and `gradients`, gradients of its parameters are accumulated into its store, and its dropout draws.
std::unique_ptr<LossGraph> build_loss_graph(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                                            const std::optional<GradientOptions>& gradients);

// The two halves of build_loss_graph(), for who has more to add to the loss: the first builds the forward part, up to
// `loss`, which may then become another; the second all that follows. `trained`: gradients will be wanted.
std::unique_ptr<LossGraph> begin_loss_graph(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                                            bool trained);
void finish_loss_graph(LossGraph& built, Adapter* adapter, const std::optional<GradientOptions>& gradients);

// Logits of chosen rows of one sequence that continues a key-value cache. Symbols: T new tokens, M rows.
struct CacheGraph {
  Graph graph;
  ValueId tokens, positions;               // [T]
  ValueId q_offsets, kv_offsets, first;    // [2], [2], [1]
  ValueId position;                        // [1] tokens in the cache before this run
  ValueId rows;                            // [M] rows among the T whose logits are wanted
  ValueId logits;                          // [M,V]
  std::vector<std::vector<float>> caches;  // keys and values of every layer, [S, G*C]
  std::vector<float> rope;
};

// S cache tokens, at most `tokens` new ones and `rows` logits a run.
std::unique_ptr<CacheGraph> build_cache_graph(const DecoderModel& model, Adapter* adapter, int64_t cache_tokens,
                                              int64_t tokens, int64_t rows);

}  // namespace patina
