#include "model/decoder_lm.h"

#include <functional>

#include "formats/names.h"
#include "graph/fuse.h"
#include "ops/cache_append.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace patina {

namespace {

// What differs between uses of the model.
struct DecoderUse {
  ValueId tokens, positions, rope;
  SequenceInputs sequences;
  LinearUse linear;
  // Replaces a layer's new keys or values by all that queries may see: themselves, or a cache with them appended.
  std::function<ValueId(ValueId fresh, int layer, bool keys)> visible;
};

// Hidden states [T,D] after the last norm. `layers` gets the nodes of each.
ValueId build_decoder(Graph& graph, const DecoderModel& model, Adapter* adapter, const DecoderUse& use,
                      std::vector<NodeRange>& layers) {
  const DecoderConfig& config = model.config();
  AttentionSpec attention_spec{};
  attention_spec.heads = config.heads;
  attention_spec.kv_heads = config.kv_heads;
  attention_spec.width = config.head_width;
  attention_spec.mask = AttentionSpec::Mask::kCausal;
  attention_spec.scale = score_scale(config.head_width);

  ValueId h = embedding(graph, use.tokens, graph.frozen("token_embd", model.embedding()), "token_embd");
  for (int i = 0; i < config.layers; ++i) {
    const int first_node = static_cast<int>(graph.nodes().size());
    const DecoderLayer& layer = model.layers()[static_cast<size_t>(i)];
    const auto label = [&](std::string_view what) { return fmt::format("layers.{}.{}", i, what); };
    const auto project = [&](ValueId x, SiteName site, const Tensor& weight, ValueId acc) {
      return linear(graph, adapter, x, graph.frozen(label(site_name(site)), weight), acc, i, site_name(site),
                    use.linear);
    };
    const ValueId a =
        rms_norm(graph, h, graph.frozen(label("attn_norm"), layer.attention_norm), config.norm_eps, label("attn_norm"));
    const ValueId q = rope(graph, project(a, SiteName::kQ, layer.q, kNoValue), use.positions, use.rope,
                           config.head_width, label("q"));
    const ValueId k = rope(graph, project(a, SiteName::kK, layer.k, kNoValue), use.positions, use.rope,
                           config.head_width, label("k"));
    const ValueId v = project(a, SiteName::kV, layer.v, kNoValue);
    const ValueId mixed = attention(graph, q, use.visible(k, i, true), use.visible(v, i, false), use.sequences,
                                    attention_spec, label("attn"));
    h = project(mixed, SiteName::kO, layer.o, h);
    const ValueId m = rms_norm(graph, h, graph.frozen(label("ffn_norm"), layer.feed_forward_norm), config.norm_eps,
                               label("ffn_norm"));
    const ValueId gate = project(m, SiteName::kGate, layer.gate, kNoValue);
    const ValueId up = project(m, SiteName::kUp, layer.up, kNoValue);
    h = project(swiglu(graph, gate, up, label("ffn")), SiteName::kDown, layer.down, h);
    layers.push_back({first_node, static_cast<int>(graph.nodes().size())});
  }
  return rms_norm(graph, h, graph.frozen("output_norm", model.output_norm()), config.norm_eps, "output_norm");
}

ValueId rope_value(Graph& graph, std::vector<float>& table, const DecoderConfig& config, int64_t positions) {
  table = rope_table(config.rope(), positions);
  return graph.frozen("rope", dense(table.data(), DType::kF32, Shape{positions, config.head_width}));
}

// Rows whose logits exist at a time where an adapter changes the head: the products are near full speed from here on.
constexpr int64_t kPortionRows = 128;

// The loss through a head that an adapter changes: its logits portion by portion; the graph's backward should compute
// all portions but the last again.
void add_adapted_head(LossGraph& built, const DecoderModel& model, Adapter& adapter, const LossLimits& limits,
                      const std::optional<RowPlaces>& places) {
  Graph& graph = built.graph;
  const ValueId weight = graph.frozen("lm_head", model.head());
  built.loss = kNoValue;
  for (int64_t first = 0; first < limits.tokens; first += kPortionRows) {
    const int first_node = static_cast<int>(graph.nodes().size());
    const Extent m =
        graph.symbol(fmt::format("M{}", built.portions.size()), std::min(kPortionRows, limits.tokens - first));
    const SupervisedRows supervised{graph.input("rows", DType::kI32, {m}), graph.input("labels", DType::kI32, {m})};
    LinearUse use;
    use.places = places;
    if (use.places) use.places->rows = supervised.rows;
    const ValueId h = gather_rows(graph, built.hidden, supervised.rows, "supervised");
    const ValueId logits = adapter.linear(graph, h, weight, kNoValue, kNoLayer, site_name(SiteName::kLmHead), use);
    built.loss = cross_entropy(graph, logits, supervised.labels, built.loss, "lm_head");
    built.supervised.push_back(supervised);
    built.portions.push_back({first_node, static_cast<int>(graph.nodes().size())});
  }
}

}  // namespace

std::vector<int64_t> LossGraph::sizes(int64_t token_count, int64_t sequences, int64_t row_count) const {
  std::vector<int64_t> sizes = {token_count, sequences + 1, sequences};
  for (size_t i = 0; i < supervised.size(); ++i) {
    const int64_t most = graph.symbol_maximum(static_cast<int>(sizes.size()));
    sizes.push_back(i + 1 == supervised.size() ? row_count : std::min(row_count, most));
    row_count -= sizes.back();
  }
  return sizes;
}

std::unique_ptr<LossGraph> begin_loss_graph(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                                            bool trained) {
  auto built = std::make_unique<LossGraph>();
  Graph& graph = built->graph;
  const Extent t = graph.symbol("T", limits.tokens), b1 = graph.symbol("B+1", limits.sequences + 1),
               b = graph.symbol("B", limits.sequences);
  built->tokens = graph.input("tokens", DType::kI32, {t});
  built->positions = graph.input("positions", DType::kI32, {t});
  built->offsets = graph.input("offsets", DType::kI32, {b1});
  built->first = graph.input("first", DType::kI32, {b});
  DecoderUse use{built->tokens,
                 built->positions,
                 rope_value(graph, built->rope, model.config(), limits.positions),
                 {built->offsets, built->offsets, built->first},
                 {},
                 [](ValueId fresh, int, bool) { return fresh; }};
  if (trained && adapter != nullptr && adapter->has_dropout()) {
    built->samples = graph.input("samples", DType::kI32, {t});
    built->step = graph.input("step", DType::kI32, {1});
    use.linear.places = RowPlaces{built->step, built->samples, built->positions};
  }
  built->hidden = build_decoder(graph, model, adapter, use, built->layers);
  if (adapter != nullptr && adapter->adapts(kNoLayer, site_name(SiteName::kLmHead))) {
    add_adapted_head(*built, model, *adapter, limits, use.linear.places);
  } else {
    const Extent m = graph.symbol("M", limits.tokens);
    built->supervised = {{graph.input("rows", DType::kI32, {m}), graph.input("labels", DType::kI32, {m})}};
    const auto [rows, labels] = built->supervised[0];
    built->loss = head_loss(graph, gather_rows(graph, built->hidden, rows, "supervised"),
                            graph.frozen("lm_head", model.head()), labels, trained, "lm_head");
  }
  return built;
}

void finish_loss_graph(LossGraph& built, Adapter* adapter, const std::optional<GradientOptions>& gradients) {
  Graph& graph = built.graph;
  graph.mark_output(built.loss);
  if (gradients) {
    PATINA_CHECK(adapter != nullptr, "gradient without an adapter");
    const int forward_nodes = static_cast<int>(graph.nodes().size());
    built.gradients = differentiate(graph, built.loss, adapter->gradients(graph), {}, gradients->formulation);
    std::vector<NodeRange> segments = recompute_segments(built.layers, gradients->segments);
    const std::vector<NodeRange> head = recompute_segments(built.portions, static_cast<int>(built.portions.size()));
    segments.insert(segments.end(), head.begin(), head.end());
    built.repeated_nodes = recompute(graph, forward_nodes, segments);
  }
  fuse_branches(graph);
}

std::unique_ptr<LossGraph> build_loss_graph(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                                            const std::optional<GradientOptions>& gradients) {
  auto built = begin_loss_graph(model, adapter, limits, gradients.has_value());
  finish_loss_graph(*built, adapter, gradients);
  return built;
}

std::unique_ptr<CacheGraph> build_cache_graph(const DecoderModel& model, Adapter* adapter, int64_t cache_tokens,
                                              int64_t tokens, int64_t rows) {
  auto built = std::make_unique<CacheGraph>();
  Graph& graph = built->graph;
  const DecoderConfig& config = model.config();
  const Extent t = graph.symbol("T", tokens), m = graph.symbol("M", rows);
  built->tokens = graph.input("tokens", DType::kI32, {t});
  built->positions = graph.input("positions", DType::kI32, {t});
  built->q_offsets = graph.input("q_offsets", DType::kI32, {2});
  built->kv_offsets = graph.input("kv_offsets", DType::kI32, {2});
  built->first = graph.input("first", DType::kI32, {1});
  built->position = graph.input("position", DType::kI32, {1});
  built->rows = graph.input("rows", DType::kI32, {m});
  const int64_t cache_width = config.kv_heads * config.head_width;
  built->caches.assign(static_cast<size_t>(2 * config.layers),
                       std::vector<float>(static_cast<size_t>(cache_tokens * cache_width)));
  DecoderUse use{built->tokens,
                 built->positions,
                 rope_value(graph, built->rope, config, cache_tokens),
                 {built->q_offsets, built->kv_offsets, built->first},
                 {.few_rows = true},
                 [&](ValueId fresh, int layer, bool keys) {
                   const std::string label = fmt::format("layers.{}.{}_cache", layer, keys ? "k" : "v");
                   std::vector<float>& memory = built->caches[static_cast<size_t>(2 * layer + (keys ? 0 : 1))];
                   const ValueId cache = graph.state(label, DType::kF32, {cache_tokens, cache_width}, memory.data());
                   return cache_append(graph, cache, fresh, built->position, label);
                 }};
  std::vector<NodeRange> layers;
  const ValueId hidden = gather_rows(graph, build_decoder(graph, model, adapter, use, layers), built->rows, "last");
  built->logits = linear(graph, adapter, hidden, graph.frozen("lm_head", model.head()), kNoValue, kNoLayer,
                         site_name(SiteName::kLmHead), use.linear);
  graph.mark_output(built->logits);
  return built;
}

}  // namespace patina
