#include "model/dit.h"

#include "base/scalar_math.h"
#include "formats/names.h"
#include "graph/fuse.h"
#include "graph/recompute.h"
#include "model/rope_table.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/modulate.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/squared_error.h"
#include "ops/view.h"

namespace patina {

namespace {

// Builds one graph.
class DitBuilder {
 public:
  DitBuilder(FlowGraph& flow, const DitModel& model, Adapter* adapter)
      : flow_(flow), graph_(flow.graph), model_(model), config_(model.config()), adapter_(adapter) {}

  // Velocities [T, latents * P].
  ValueId velocity(ValueId rope, const LinearUse& tokens, const LinearUse& conditioning) {
    rope_ = rope;
    tokens_ = tokens;
    conditioning_ = conditioning;
    add_time();
    ValueId h = biased(flow_.input, model_.patch_in(), "proj_in");
    const ValueId c = biased(flow_.conditioning, model_.conditioning(), "condition_embedder");
    for (int i = 0; i < config_.layers; ++i) {
      const int first_node = static_cast<int>(graph_.nodes().size());
      h = layer(h, c, i);
      flow_.layers.push_back({first_node, static_cast<int>(graph_.nodes().size())});
    }
    const ValueId table =
        add(graph_, repeated(model_.output_modulation(), twice_time_, "norm_out"), twice_time_, "norm_out.modulation");
    flow_.hidden = modulate(graph_, norm(h, model_.output_norm(), "norm_out"), part(table, 1, "norm_out"),
                            part(table, 0, "norm_out"), kNoValue, flow_.songs, "norm_out");
    return frozen_linear_backward(graph_, flow_.hidden, graph_.frozen("proj_out", model_.patch_out().weight),
                                  repeated(model_.patch_out().bias, flow_.target, "proj_out.bias"), "proj_out");
  }

 private:
  ValueId repeated(const Tensor& row, ValueId rows_like, std::string_view label) {
    return repeat_row(graph_, graph_.frozen(std::string(label), row), rows_like, label);
  }

  ValueId biased(ValueId x, const BiasedWeight& layer, const std::string& label) {
    return frozen_linear(graph_, x, graph_.frozen(label, layer.weight), repeated(layer.bias, x, label + ".bias"),
                         label);
  }

  ValueId norm(ValueId x, const Tensor& weight, const std::string& label) {
    return rms_norm(graph_, x, graph_.frozen(label, weight), config_.norm_eps, label);
  }

  // Part `index` of a table of shifts, scales and gates, [B, D].
  ValueId part(ValueId table, int64_t index, std::string_view label) {
    return columns(graph_, table, index * config_.width, config_.width, label);
  }

  // What t makes of every layer: [B, 6 D]; and of the end, twice side by side, [B, 2 D].
  void add_time() {
    const auto embed = [&](ValueId sinusoid, const TimeEmbedding& weights, const std::string& name) {
      const ValueId hidden = silu(graph_, biased(sinusoid, weights.first, name + ".linear_1"), name);
      return biased(hidden, weights.second, name + ".linear_2");
    };
    const auto project = [&](ValueId embedding, const TimeEmbedding& weights, const std::string& name) {
      return biased(silu(graph_, embedding, name), weights.projection, name + ".time_proj");
    };
    const ValueId t = embed(flow_.times, model_.time(), "time_embed"),
                  r = embed(flow_.differences, model_.time_difference(), "time_embed_r");
    time_ = add(graph_, project(t, model_.time(), "time_embed"), project(r, model_.time_difference(), "time_embed_r"),
                "time");
    const ValueId sum = add(graph_, t, r, "time.sum");
    twice_time_ = add(graph_, pad_columns(graph_, sum, 0, 2 * config_.width, "time.sum"),
                      pad_columns(graph_, sum, config_.width, 2 * config_.width, "time.sum"), "time.sum");
  }

  ValueId project(ValueId x, int i, SiteName site, const Tensor& weight, ValueId acc, const LinearUse& use) {
    return linear(graph_, adapter_, x, graph_.frozen(site_label(i, site_name(site)), weight), acc, i, site_name(site),
                  use);
  }

  // Each head of x [T, heads * C] divided by its root mean square.
  ValueId head_norm(ValueId x, const Tensor& weight, const std::string& label) {
    const Extents extents = graph_.value(x).extents;
    Extent heads = extents[0];
    heads.size *= extents[1].size / config_.head_width;
    const ValueId split = reshape(graph_, x, {heads, config_.head_width}, label);
    return reshape(graph_, norm(split, weight, label), extents, label);
  }

  ValueId self_attention(ValueId x, const DitAttention& weights, int i) {
    const auto label = [&](std::string_view what) { return fmt::format("layers.{}.self.{}", i, what); };
    const ValueId q =
        head_norm(project(x, i, SiteName::kSelfQ, weights.q, kNoValue, tokens_), weights.q_norm, label("q_norm"));
    const ValueId k =
        head_norm(project(x, i, SiteName::kSelfK, weights.k, kNoValue, tokens_), weights.k_norm, label("k_norm"));
    const ValueId v = project(x, i, SiteName::kSelfV, weights.v, kNoValue, tokens_);
    const bool windowed = config_.windowed[static_cast<size_t>(i)];
    const ValueId mixed =
        attention(graph_, rope(graph_, q, flow_.positions, rope_, config_.head_width, label("q")),
                  rope(graph_, k, flow_.positions, rope_, config_.head_width, label("k")), v,
                  {flow_.offsets, flow_.offsets, flow_.first},
                  spec(windowed ? AttentionSpec::Mask::kWindow : AttentionSpec::Mask::kNone), label("attn"));
    return project(mixed, i, SiteName::kSelfO, weights.o, kNoValue, tokens_);
  }

  ValueId cross_attention(ValueId x, ValueId c, ValueId h, const DitAttention& weights, int i) {
    const auto label = [&](std::string_view what) { return fmt::format("layers.{}.cross.{}", i, what); };
    const ValueId q =
        head_norm(project(x, i, SiteName::kCrossQ, weights.q, kNoValue, tokens_), weights.q_norm, label("q_norm"));
    const ValueId k = head_norm(project(c, i, SiteName::kCrossK, weights.k, kNoValue, conditioning_), weights.k_norm,
                                label("k_norm"));
    const ValueId v = project(c, i, SiteName::kCrossV, weights.v, kNoValue, conditioning_);
    const ValueId mixed = attention(graph_, q, k, v, {flow_.offsets, flow_.conditioning_offsets, flow_.first},
                                    spec(AttentionSpec::Mask::kNone), label("attn"));
    return project(mixed, i, SiteName::kCrossO, weights.o, h, tokens_);
  }

  AttentionSpec spec(AttentionSpec::Mask mask) const {
    return {.heads = config_.heads,
            .kv_heads = config_.kv_heads,
            .width = config_.head_width,
            .mask = mask,
            .window = mask == AttentionSpec::Mask::kWindow ? config_.window : 0,
            .scale = score_scale(config_.head_width)};
  }

  ValueId layer(ValueId h, ValueId c, int i) {
    const DitLayer& weights = model_.layers()[static_cast<size_t>(i)];
    const auto label = [&](std::string_view what) { return fmt::format("layers.{}.{}", i, what); };
    const std::string modulation = label("modulation");
    const ValueId table = add(graph_, repeated(weights.modulation, time_, modulation), time_, modulation);
    const auto modulated = [&](ValueId x, const Tensor& weight, int64_t first_part, const std::string& name) {
      return modulate(graph_, norm(x, weight, name), part(table, first_part + 1, name), part(table, first_part, name),
                      kNoValue, flow_.songs, name);
    };
    const auto gated = [&](ValueId x, int64_t gate, ValueId acc, const std::string& name) {
      return modulate(graph_, x, part(table, gate, name), kNoValue, acc, flow_.songs, name);
    };
    const ValueId a = modulated(h, weights.self_norm, 0, label("self_attn_norm"));
    h = gated(self_attention(a, weights.self, i), 2, h, label("self_attn_gate"));
    h = cross_attention(norm(h, weights.cross_norm, label("cross_attn_norm")), c, h, weights.cross, i);
    const ValueId m = modulated(h, weights.mlp_norm, 3, label("mlp_norm"));
    const ValueId gate = project(m, i, SiteName::kMlpGate, weights.gate, kNoValue, tokens_);
    const ValueId up = project(m, i, SiteName::kMlpUp, weights.up, kNoValue, tokens_);
    const ValueId down =
        project(swiglu(graph_, gate, up, label("mlp")), i, SiteName::kMlpDown, weights.down, kNoValue, tokens_);
    return gated(down, 5, h, label("mlp_gate"));
  }

  FlowGraph& flow_;
  Graph& graph_;
  const DitModel& model_;
  const DitConfig& config_;
  Adapter* const adapter_;
  LinearUse tokens_, conditioning_;
  ValueId rope_ = kNoValue, time_ = kNoValue, twice_time_ = kNoValue;
};

}  // namespace

std::unique_ptr<FlowGraph> begin_flow_graph(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
                                            bool trained) {
  const DitConfig& config = model.config();
  auto flow = std::make_unique<FlowGraph>();
  Graph& graph = flow->graph;
  const Extent t = graph.symbol("T", limits.tokens), e = graph.symbol("E", limits.conditioning),
               b1 = graph.symbol("B+1", limits.songs + 1), b = graph.symbol("B", limits.songs);
  const int64_t patch_latents = config.latent_channels * config.patch;
  flow->input = graph.input("input", DType::kF32, {t, config.in_channels() * config.patch});
  flow->conditioning = graph.input("conditioning", DType::kF32, {e, config.encoder_width});
  flow->times = graph.input("times", DType::kF32, {b, kTimeChannels});
  flow->differences = graph.input("differences", DType::kF32, {b, kTimeChannels});
  flow->positions = graph.input("positions", DType::kI32, {t});
  flow->songs = graph.input("songs", DType::kI32, {t});
  flow->offsets = graph.input("offsets", DType::kI32, {b1});
  flow->conditioning_offsets = graph.input("conditioning_offsets", DType::kI32, {b1});
  flow->first = graph.input("first", DType::kI32, {b});
  flow->target = graph.input("target", DType::kF32, {t, patch_latents});
  flow->weight = graph.input("weight", DType::kF32, {t, patch_latents});
  LinearUse tokens, conditioning;
  if (trained && adapter != nullptr && adapter->has_dropout()) {
    flow->step = graph.input("step", DType::kI32, {1});
    flow->samples = graph.input("samples", DType::kI32, {t});
    flow->conditioning_samples = graph.input("conditioning_samples", DType::kI32, {e});
    flow->conditioning_positions = graph.input("conditioning_positions", DType::kI32, {e});
    tokens.places = RowPlaces{flow->step, flow->samples, flow->positions};
    conditioning.places = RowPlaces{flow->step, flow->conditioning_samples, flow->conditioning_positions};
  }
  flow->rope = rope_table({config.head_width, config.rope_base}, limits.positions);
  const ValueId rope =
      graph.frozen("rope", dense(flow->rope.data(), DType::kF32, Shape{limits.positions, config.head_width}));
  flow->velocity = DitBuilder(*flow, model, adapter).velocity(rope, tokens, conditioning);
  const SquaredErrorValues loss = squared_error(graph, flow->velocity, flow->target, flow->weight, "loss");
  flow->loss = loss.loss;
  flow->losses = loss.rows;
  return flow;
}

void finish_flow_graph(FlowGraph& flow, Adapter* adapter, const std::optional<GradientOptions>& gradients) {
  Graph& graph = flow.graph;
  graph.mark_output(flow.loss);
  graph.mark_output(flow.losses);
  if (gradients) {
    PATINA_CHECK(adapter != nullptr, "gradient without an adapter");
    const int forward_nodes = static_cast<int>(graph.nodes().size());
    flow.gradients = differentiate(graph, flow.loss, adapter->gradients(graph), {}, gradients->formulation);
    flow.repeated_nodes = recompute(graph, forward_nodes, recompute_segments(flow.layers, gradients->segments));
  } else {
    graph.mark_output(flow.velocity);
  }
  fuse_branches(graph);
}

std::unique_ptr<FlowGraph> build_flow_graph(const DitModel& model, Adapter* adapter, const FlowLimits& limits,
                                            const std::optional<GradientOptions>& gradients) {
  auto flow = begin_flow_graph(model, adapter, limits, gradients.has_value());
  finish_flow_graph(*flow, adapter, gradients);
  return flow;
}

void time_sinusoid(double t, float* out) {
  constexpr int kHalf = static_cast<int>(kTimeChannels) / 2;
  for (int i = 0; i < kHalf; ++i) {
    const double frequency = exact_pow(10000.0, -static_cast<double>(i) / kHalf);
    double sine = 0.0, cosine = 0.0;
    exact_sincos(1000.0 * t * frequency, &sine, &cosine);
    out[i] = static_cast<float>(cosine);
    out[kHalf + i] = static_cast<float>(sine);
  }
}

}  // namespace patina
