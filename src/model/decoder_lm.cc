#include "model/decoder_lm.h"

#include <functional>

#include "base/scalar_math.h"
#include "formats/names.h"
#include "graph/fuse.h"
#include "graph/recompute.h"
#include "ops/cache_append.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/frozen_linear.h"
#include "ops/head_loss.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace patina {

namespace {

// 1 / sqrt(C), rounded once.
float score_scale(int64_t head_width) { return static_cast<float>(exact_pow(static_cast<double>(head_width), -0.5)); }

// What differs between uses of the model.
struct DecoderUse {
  ValueId tokens, positions, rope;
  SequenceInputs sequences;
  bool few_rows;
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
                    use.few_rows);
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
  table = rope_table(config, positions);
  return graph.frozen("rope", dense(table.data(), DType::kF32, Shape{positions, config.head_width}));
}

}  // namespace

std::unique_ptr<LossGraph> build_loss_graph(const DecoderModel& model, Adapter* adapter, const LossLimits& limits,
                                            const std::optional<GradientOptions>& gradients) {
  // The loss works on the head's weight alone, chunk by chunk: an adapter of the head would be left out of it.
  if (adapter != nullptr && adapter->adapts(kNoLayer, site_name(SiteName::kLmHead)))
    fail(Error::Kind::kUsage,
         "the adapter changes lm_head, through which no loss can be computed yet; only generate can use it");
  auto built = std::make_unique<LossGraph>();
  Graph& graph = built->graph;
  const Extent t = graph.symbol("T", limits.tokens), b1 = graph.symbol("B+1", limits.sequences + 1),
               b = graph.symbol("B", limits.sequences), m = graph.symbol("M", limits.tokens);
  built->tokens = graph.input("tokens", DType::kI32, {t});
  built->positions = graph.input("positions", DType::kI32, {t});
  built->offsets = graph.input("offsets", DType::kI32, {b1});
  built->first = graph.input("first", DType::kI32, {b});
  built->rows = graph.input("rows", DType::kI32, {m});
  built->labels = graph.input("labels", DType::kI32, {m});
  DecoderUse use{built->tokens,
                 built->positions,
                 rope_value(graph, built->rope, model.config(), limits.positions),
                 {built->offsets, built->offsets, built->first},
                 false,
                 [](ValueId fresh, int, bool) { return fresh; }};
  std::vector<NodeRange> layers;
  const ValueId hidden =
      gather_rows(graph, build_decoder(graph, model, adapter, use, layers), built->rows, "supervised");
  built->loss =
      head_loss(graph, hidden, graph.frozen("lm_head", model.head()), built->labels, gradients.has_value(), "lm_head");
  graph.mark_output(built->loss);
  if (gradients) {
    PATINA_CHECK(adapter != nullptr, "gradient without an adapter");
    const int forward_nodes = static_cast<int>(graph.nodes().size());
    built->gradients = differentiate(graph, built->loss, adapter->gradients(graph), {}, gradients->formulation);
    built->repeated_nodes = recompute(graph, forward_nodes, recompute_segments(layers, gradients->segments));
  }
  fuse_branches(graph);
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
                 true,
                 [&](ValueId fresh, int layer, bool keys) {
                   const std::string label = fmt::format("layers.{}.{}_cache", layer, keys ? "k" : "v");
                   std::vector<float>& memory = built->caches[static_cast<size_t>(2 * layer + (keys ? 0 : 1))];
                   const ValueId cache = graph.state(label, DType::kF32, {cache_tokens, cache_width}, memory.data());
                   return cache_append(graph, cache, fresh, built->position, label);
                 }};
  std::vector<NodeRange> layers;
  const ValueId hidden = gather_rows(graph, build_decoder(graph, model, adapter, use, layers), built->rows, "last");
  built->logits = linear(graph, adapter, hidden, graph.frozen("lm_head", model.head()), kNoValue, kNoLayer,
                         site_name(SiteName::kLmHead), true);
  graph.mark_output(built->logits);
  return built;
}

}  // namespace patina
