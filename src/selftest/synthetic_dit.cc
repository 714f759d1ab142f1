#include "selftest/synthetic_dit.h"

#include <algorithm>
#include <numeric>

#include "base/philox.h"
#include "formats/gguf.h"
#include "formats/names.h"
#include "formats/safetensors.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "ops/squared_error.h"
#include "quant/encode.h"
#include "selftest/guard_site.h"
#include "selftest/recorded_losses.h"
#include "selftest/synthetic_weight.h"
#include "train/flow_objective.h"

namespace patina {

namespace {

constexpr int64_t kWidth = 256, kFeedForward = 512, kHeads = 8, kKvHeads = 2, kHeadWidth = 64, kPatch = 2;
constexpr int64_t kInChannels = SyntheticDit::kContextChannels + SyntheticDit::kLatentChannels;
constexpr SongWidths kWidths = {SyntheticDit::kLatentChannels, SyntheticDit::kContextChannels,
                                SyntheticDit::kEncoderWidth};
constexpr float kChannelWeights[] = {0.5f, 1.5f, 0.75f, 1.25f};
constexpr uint64_t kNoiseSeed = 11;
constexpr int64_t kNoiseStep = 3;

std::vector<float> normals(int64_t count, uint32_t stream, double size, double mean = 0.0) {
  const RandomStream random(5, RandomUse::kTest, stream);
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>(mean + size * random.normal(static_cast<uint64_t>(i))));
  return numbers;
}

// Writes the tensors of one model.
class Writer {
 public:
  Writer(DType dtype, ThreadPool& pool) : dtype_(dtype), pool_(pool) {
    file_.set("general.architecture", kDitArchitecture);
    const auto set = [&](const char* key, int64_t value) { file_.set(key, static_cast<uint32_t>(value)); };
    set("acestep-dit.block_count", SyntheticDit::kLayers);
    set("acestep-dit.embedding_length", kWidth);
    set("acestep-dit.feed_forward_length", kFeedForward);
    set("acestep-dit.attention.head_count", kHeads);
    set("acestep-dit.attention.head_count_kv", kKvHeads);
    set("acestep-dit.attention.key_length", kHeadWidth);
    file_.set("acestep-dit.rope.freq_base", 1e4f);
    file_.set("acestep-dit.attention.layer_norm_rms_epsilon", 1e-5f);
    set("acestep.in_channels", kInChannels);
    set("acestep.audio_acoustic_hidden_dim", SyntheticDit::kLatentChannels);
    set("acestep.patch_size", kPatch);
    set("acestep.sliding_window", SyntheticDit::kWindow);
    set("acestep.encoder_hidden_size", SyntheticDit::kEncoderWidth);
    add_ends();
    for (int i = 0; i < SyntheticDit::kLayers; ++i) add_layer(fmt::format("decoder.layers.{}.", i));
  }
  void write(const std::filesystem::path& path) { file_.write(path); }

 private:
  void matrix(const std::string& name, int64_t rows, int64_t columns) {
    file_.add_tensor(name + ".weight", dtype_, {rows, columns},
                     synthetic_weight(dtype_, rows, columns, next_++, pool_));
  }
  void numbers(const std::string& name, const Shape& shape, const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, std::ssize(values))));
    encode_row(dtype)(values.data(), std::ssize(values), bytes.data());
    file_.add_tensor(name, dtype, shape, bytes);
  }
  void vector(const std::string& name, const Shape& shape, double size, double mean = 0.0) {
    numbers(name, shape, normals(shape.elements(), next_++, size, mean), DType::kF32);
  }
  void norm(const std::string& name, int64_t width) { vector(name + ".weight", {width}, 0.2, 1.0); }
  void biased(const std::string& name, int64_t rows, int64_t columns) {
    matrix(name, rows, columns);
    vector(name + ".bias", {rows}, 0.1);
  }

  // What no block type is used for: rows of two, and rows that see the sinusoid of t, whose neighbours are alike, so
  // that what is common to a block's random numbers would drown the rest.
  DType plain() const { return info(dtype_).block_values == 1 ? dtype_ : DType::kF32; }
  void end(const std::string& name, const Shape& shape, double size) {
    numbers(name + ".weight", shape, normals(shape.elements(), next_++, size), plain());
    vector(name + ".bias", {shape[0]}, 0.1);
  }

  void add_ends() {
    for (const std::string name : {"decoder.time_embed", "decoder.time_embed_r"}) {
      end(name + ".linear_1", {kWidth, kTimeChannels}, 0.06);
      end(name + ".linear_2", {kWidth, kWidth}, 0.06);
      end(name + ".time_proj", {6 * kWidth, kWidth}, 0.03);
    }
    biased("decoder.condition_embedder", kWidth, SyntheticDit::kEncoderWidth);
    constexpr double kInSize = 0.2, kOutOverIn = 0.2;
    const std::vector<float> in = normals(kWidth * kInChannels * kPatch, next_++, kInSize);
    std::vector<float> out;
    for (int64_t d = 0; d < kWidth; ++d)
      for (int64_t j = SyntheticDit::kContextChannels * kPatch; j < kInChannels * kPatch; ++j)
        out.push_back(static_cast<float>(kOutOverIn) * in[static_cast<size_t>(d * kInChannels * kPatch + j)]);
    numbers("decoder.proj_in.1.weight", {kWidth, kInChannels, kPatch}, in, plain());
    numbers("decoder.proj_out.1.weight", {kWidth, SyntheticDit::kLatentChannels, kPatch}, out, plain());
    vector("decoder.proj_in.1.bias", {kWidth}, 0.1);
    vector("decoder.proj_out.1.bias", {SyntheticDit::kLatentChannels}, 0.1);
    norm("decoder.norm_out", kWidth);
    vector("decoder.scale_shift_table", {1, 2, kWidth}, 0.2);
    vector("null_condition_emb", {1, 1, SyntheticDit::kEncoderWidth}, 1.0);
  }

  void add_layer(const std::string& layer) {
    for (const std::string name : {"self_attn", "cross_attn"}) {
      norm(layer + name + "_norm", kWidth);
      matrix(layer + name + ".q_proj", kHeads * kHeadWidth, kWidth);
      matrix(layer + name + ".k_proj", kKvHeads * kHeadWidth, kWidth);
      matrix(layer + name + ".v_proj", kKvHeads * kHeadWidth, kWidth);
      matrix(layer + name + ".o_proj", kWidth, kHeads * kHeadWidth);
      norm(layer + name + ".q_norm", kHeadWidth);
      norm(layer + name + ".k_norm", kHeadWidth);
    }
    norm(layer + "mlp_norm", kWidth);
    matrix(layer + "mlp.gate_proj", kFeedForward, kWidth);
    matrix(layer + "mlp.up_proj", kFeedForward, kWidth);
    matrix(layer + "mlp.down_proj", kWidth, kFeedForward);
    vector(layer + "scale_shift_table", {1, 6, kWidth}, 0.3);
  }

  const DType dtype_;
  ThreadPool& pool_;
  GgufWriter file_;
  uint32_t next_ = 1;
};

std::filesystem::path written(DType dtype, const std::filesystem::path& directory, ThreadPool& pool) {
  const std::filesystem::path path = directory / fmt::format("dit-{}.gguf", name(dtype));
  Writer(dtype, pool).write(path);
  return path;
}

constexpr SyntheticSong kSongs[] = {{7, 3, 0}, {21, 2, 1}, {8, 4, 2}, {26, 3, 3}};

class DitGraph final : public TrainableGraph {
 public:
  DitGraph(const SyntheticDit& dit, Adapter* adapter, const TrainableOptions& options, const Tensor& guard_weight)
      : dit_(dit), flow_(begin_flow_graph(dit.dit(), adapter, limits(dit), options.gradients.has_value())) {
    if (options.guard_site) add_guard_site(*adapter, guard_weight);
    finish_flow_graph(*flow_, adapter, options.gradients);
  }

  const Graph& graph() const override { return flow_->graph; }
  ValueId loss() const override { return flow_->loss; }
  const Differentiation& differentiation() const override { return flow_->gradients; }
  int repeated_nodes() const override { return flow_->repeated_nodes; }

  // Padding is a song of its own, which weighs nothing: inside a song every row is seen by the others.
  Feed feed(const Items& items, int64_t padding) override {
    std::vector<FlowDraw> draws;
    for (const size_t item : items) draws.push_back(dit_.draws()[item]);
    fill(batch_, dit_.songs(), draws, dit_.layout());
    if (padding > 0) add_padding(padding);
    return {FlowGraph::sizes(std::ssize(batch_.positions), std::ssize(batch_.conditioning_positions),
                             std::ssize(batch_.first)),
            {{flow_->input, batch_.input.data()},
             {flow_->conditioning, batch_.conditioning.data()},
             {flow_->times, batch_.times.data()},
             {flow_->differences, batch_.differences.data()},
             {flow_->positions, batch_.positions.data()},
             {flow_->songs, batch_.songs.data()},
             {flow_->offsets, batch_.offsets.data()},
             {flow_->conditioning_offsets, batch_.conditioning_offsets.data()},
             {flow_->first, batch_.first.data()},
             {flow_->target, batch_.target.data()},
             {flow_->weight, batch_.weight.data()}}};
  }

 private:
  static constexpr int64_t kPaddingConditions = 2;

  static FlowLimits limits(const SyntheticDit& dit) {
    FlowLimits limits{TrainableModel::kMostPadding, kPaddingConditions, 1, TrainableModel::kMostPadding};
    for (const FlowDraw& draw : dit.draws()) {
      const int64_t tokens = draw.tokens(kPatch);
      limits.tokens += tokens;
      limits.conditioning += conditioning_tokens(dit.songs()[draw.song], draw);
      limits.positions = std::max(limits.positions, tokens);
      ++limits.songs;
    }
    return limits;
  }

  void add_padding(int64_t rows) {
    const auto grow = [](std::vector<float>& values, int64_t count, float value) {
      values.insert(values.end(), static_cast<size_t>(count), value);
    };
    grow(batch_.input, rows * kInChannels * kPatch, 3.0f);
    grow(batch_.target, rows * SyntheticDit::kLatentChannels * kPatch, -2.0f);
    grow(batch_.weight, rows * SyntheticDit::kLatentChannels * kPatch, 0.0f);
    grow(batch_.conditioning, kPaddingConditions * SyntheticDit::kEncoderWidth, 0.5f);
    grow(batch_.times, kTimeChannels, 0.25f);
    grow(batch_.differences, kTimeChannels, 0.75f);
    for (int64_t t = 0; t < rows; ++t) batch_.positions.push_back(static_cast<int32_t>(t));
    batch_.songs.insert(batch_.songs.end(), static_cast<size_t>(rows), static_cast<int32_t>(batch_.first.size()));
    for (int64_t e = 0; e < kPaddingConditions; ++e) batch_.conditioning_positions.push_back(static_cast<int32_t>(e));
    batch_.offsets.push_back(static_cast<int32_t>(batch_.positions.size()));
    batch_.conditioning_offsets.push_back(static_cast<int32_t>(batch_.conditioning_positions.size()));
    batch_.first.push_back(0);
  }

  // A second way out of the last norm: loss += the squared error of W [adapted gate h, frozen up h]. A LoKr branch may
  // make the gradient of its product dense again; that of the frozen product beside it stays a slice.
  void add_guard_site(Adapter& adapter, const Tensor& weight) {
    Graph& graph = flow_->graph;
    const DitLayer& layer = dit_.dit().layers().back();
    const ValueId h = flow_->hidden;
    const ValueId gate = adapter.linear(graph, h, graph.frozen("guard.gate", layer.gate), kNoValue,
                                        SyntheticDit::kLayers - 1, site_name(SiteName::kMlpGate), {});
    const ValueId up = frozen_linear(graph, h, graph.frozen("guard.up", layer.up), kNoValue, "guard.up");
    const ValueId out = frozen_linear(graph, side_by_side(graph, gate, up, "guard"), graph.frozen("guard.out", weight),
                                      kNoValue, "guard.out");
    flow_->loss =
        add(graph, flow_->loss, squared_error(graph, out, flow_->target, flow_->weight, "guard").loss, "guard");
  }

  const SyntheticDit& dit_;
  const std::unique_ptr<FlowGraph> flow_;
  FlowBatch batch_;
};

}  // namespace

std::vector<double> SyntheticSong::latents() const {
  const std::vector<float> numbers = normals(frames * SyntheticDit::kLatentChannels, 1000 + 4 * stream, 2.0);
  std::vector<int64_t> order(static_cast<size_t>(frames));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (shuffle != 0) {
    const RandomStream random(6, RandomUse::kTest, shuffle);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  }
  std::vector<double> ordered;
  for (const int64_t frame : order) {
    const auto begin = numbers.begin() + frame * SyntheticDit::kLatentChannels;
    ordered.insert(ordered.end(), begin, begin + SyntheticDit::kLatentChannels);
  }
  return ordered;
}
std::vector<double> SyntheticSong::context() const {
  const std::vector<float> numbers = normals(frames * SyntheticDit::kContextChannels, 1001 + 4 * stream, 1.0);
  return {numbers.begin(), numbers.end()};
}
std::vector<double> SyntheticSong::states(bool genre) const {
  const std::vector<float> numbers =
      normals(conditioning * SyntheticDit::kEncoderWidth, (genre ? 1003 : 1002) + 4 * stream, 1.0);
  return {numbers.begin(), numbers.end()};
}

Song SyntheticSong::written(const std::filesystem::path& path) const {
  constexpr int64_t kBehind = 2;
  SafetensorsWriter writer;
  const auto add = [&](const std::string& name, const std::vector<double>& numbers, int64_t rows) {
    const int64_t columns = std::ssize(numbers) / rows;
    std::vector<float> floats(numbers.begin(), numbers.end());
    floats.insert(floats.end(), static_cast<size_t>(kBehind * columns), 9.0f);
    writer.add(name, DType::kF32, {rows + kBehind, columns}, std::as_bytes(std::span(floats)));
  };
  const auto add_mask = [&](const std::string& name, int64_t rows) {
    std::vector<uint8_t> mask(static_cast<size_t>(rows), 1);
    mask.insert(mask.end(), kBehind, 0);
    writer.add(name, DType::kBool, {rows + kBehind}, std::as_bytes(std::span(mask)));
  };
  add("target_latents", latents(), frames);
  add("context_latents", context(), frames);
  add_mask("attention_mask", frames);
  for (const bool genre : {false, true}) {
    const char* const ending = genre ? "_genre" : "";
    add(fmt::format("encoder_hidden_states{}", ending), states(genre), conditioning);
    add_mask(fmt::format("encoder_attention_mask{}", ending), conditioning);
  }
  writer.write(path);
  return Song::open(path, kWidths);
}

SyntheticDit::SyntheticDit(DType dtype, const std::filesystem::path& directory, ThreadPool& pool)
    : directory_(directory),
      model_(DitModel::load(patina::written(dtype, directory, pool))),
      guard_weight_(synthetic_weight(dtype, kLatentChannels * kPatch, 2 * kFeedForward, 99, pool)) {
  for (size_t i = 0; i < std::size(kSongs); ++i)
    songs_.push_back(kSongs[i].written(directory / fmt::format("song-{}.safetensors", i)));
  draws_ = {{0, 0, 7, 0.3, false, false, 0.75},
            {1, 0, 21, 0.625, false, true, 1.5},
            {2, 0, 8, 0.875, true, false, 1.25},
            {3, 6, 16, 0.5, false, false, 0.5}};
}

std::span<const float> SyntheticDit::channel_weights() const { return kChannelWeights; }

FlowLayout SyntheticDit::layout() const {
  return {model_.config(), kChannelWeights, model_.null_conditioning(), kNoiseSeed, kNoiseStep};
}

std::unique_ptr<TrainableGraph> SyntheticDit::build(Adapter* adapter, const TrainableOptions& options) const {
  const Tensor weight = dense(const_cast<std::byte*>(guard_weight_.data()), model_.layers()[0].gate.dtype,
                              {kLatentChannels * kPatch, 2 * kFeedForward});
  return std::make_unique<DitGraph>(*this, adapter, options, weight);
}

PlainSong SyntheticDit::plain_song(size_t index) const {
  const FlowDraw& draw = draws_[index];
  const SyntheticSong& made = kSongs[draw.song];
  const auto cut = [&](const std::vector<double>& numbers, int64_t channels) {
    const auto begin = numbers.begin() + draw.first_frame * channels;
    return std::vector<double>(begin, begin + draw.frames * channels);
  };
  PlainSong song{draw.frames,
                 draw.t,
                 cut(made.latents(), kLatentChannels),
                 {},
                 cut(made.context(), kContextChannels),
                 made.states(draw.genre),
                 {}};
  // At t = 1 the input is the noise.
  FlowDraw noisy = draw;
  noisy.t = 1.0;
  FlowBatch batch;
  fill(batch, songs_, std::span(&noisy, 1), layout());
  for (int64_t f = 0; f < draw.frames; ++f)
    for (int64_t c = kContextChannels; c < kInChannels; ++c)
      song.noise.push_back(
          static_cast<double>(batch.input[static_cast<size_t>((f / kPatch * kInChannels + c) * kPatch + f % kPatch)]));
  if (draw.unconditional)
    for (size_t i = 0; i < song.conditioning.size(); ++i)
      song.conditioning[i] = static_cast<double>(model_.null_conditioning()[i % kEncoderWidth]);
  for (const float weight : kChannelWeights) song.channel_weights.push_back(draw.weight * static_cast<double>(weight));
  return song;
}

double SyntheticDit::exact_loss(std::span<const AdaptedSite> adapter, const Items& items) const {
  const PlainDit plain(model_.files(), model_.config(), adapter);
  double loss = 0;
  for (const size_t item : items) loss += plain.loss(plain_song(item));
  return loss;
}

std::vector<double> SyntheticDit::train(Adapter& adapter, const Course& course, const Backend& backend,
                                        ThreadPool& pool, FunctionRef<void(int64_t)> after_step) const {
  constexpr int64_t kTogether = 2, kFrames = 8, kConditions = 2;  // songs of a step, and what they hold
  const int64_t count = kTogether * (course.learnable ? 1 : course.steps);
  std::vector<Song> songs;
  for (int64_t i = 0; i < count; ++i) {
    const SyntheticSong song{kFrames, kConditions, static_cast<uint32_t>(104 + i % kTogether),
                             course.learnable ? 0 : static_cast<uint32_t>(1 + i)};
    songs.push_back(song.written(directory_ / fmt::format("course-{}.safetensors", i)));
  }
  FlowTrainOptions options;
  options.batch = options.step_songs = kTogether;
  options.steps = course.steps;
  options.learning_rate = course.learning_rate;
  options.schedule = Schedule::kConstant;
  options.gradients = course.gradients;
  // Nearly noise alone: how the model undoes a mixture is not what the few steps are for.
  options.flow.turbo_steps = true;
  options.flow.t_min = 0.9;
  return recorded_losses(Trainer(std::make_unique<FlowObjective>(model_, adapter, songs, std::span<const Song>(),
                                                                 kChannelWeights, options, backend, pool),
                                 adapter, options, pool),
                         after_step);
}

AdapterBase SyntheticDit::base() const {
  AdapterBase base;
  base.name = "synthetic";
  base.architecture = kDitArchitecture;
  base.family = ModelFamily::kDit;
  base.layers = kLayers;
  return base;
}

std::string SyntheticDit::module_of(const Site& site) const { return plain_dit_module(site.layer, site.name); }

}  // namespace patina
