#include "selftest/synthetic_lm.h"

#include <algorithm>

#include "base/philox.h"
#include "formats/gguf.h"
#include "formats/names.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/frozen_linear.h"
#include "selftest/guard_site.h"
#include "selftest/plain_lm.h"
#include "selftest/recorded_losses.h"
#include "selftest/synthetic_weight.h"
#include "train/lm_objective.h"

namespace patina {

namespace {

constexpr int64_t kWidth = 256, kFeedForward = 512, kHeads = 8, kKvHeads = 2, kContext = 512;

// GPT-2's names of bytes: printable Latin-1 is itself, the other bytes follow from U+0100 on.
std::string byte_token(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

void add_tokenizer(GgufWriter& file) {
  constexpr int32_t kNormal = 1, kControl = 3;
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), kControl);
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(byte));
  tokens.emplace_back("zq");  // merges must not be missing; no text of ours holds this one
  types.resize(tokens.size(), kNormal);
  file.set("tokenizer.ggml.model", "gpt2");
  file.set("tokenizer.ggml.pre", "gpt-2");
  file.set("tokenizer.ggml.tokens", std::move(tokens));
  file.set("tokenizer.ggml.token_type", std::move(types));
  file.set("tokenizer.ggml.merges", std::vector<std::string>{"z q"});
  file.set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(SyntheticLm::kTurnBegin));
  file.set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(SyntheticLm::kTurnEnd));
  file.set("tokenizer.chat_template",
           "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% "
           "endfor %}");
}

std::filesystem::path written(DType dtype, const std::filesystem::path& directory, ThreadPool& pool) {
  GgufWriter file;
  file.set("general.architecture", "llama");
  file.set("general.name", "synthetic");
  const auto set = [&](const char* key, int64_t value) {
    file.set(fmt::format("llama.{}", key), static_cast<uint32_t>(value));
  };
  set("block_count", SyntheticLm::kLayers);
  set("context_length", kContext);
  set("embedding_length", kWidth);
  set("feed_forward_length", kFeedForward);
  set("attention.head_count", kHeads);
  set("attention.head_count_kv", kKvHeads);
  file.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_tokenizer(file);
  uint64_t seed = 1;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    file.add_tensor(name + ".weight", dtype, {rows, columns}, synthetic_weight(dtype, rows, columns, seed++, pool));
  };
  const auto norm = [&](const std::string& name) {
    const RandomStream random(seed++, RandomUse::kTest, 5);
    std::vector<float> numbers;
    for (uint64_t i = 0; i < kWidth; ++i) numbers.push_back(static_cast<float>(0.5 + random.uniform(i)));
    file.add_tensor(name + ".weight", DType::kF32, {kWidth}, std::as_bytes(std::span(numbers)));
  };
  constexpr int64_t kKeys = kWidth / kHeads * kKvHeads;
  matrix("token_embd", SyntheticLm::kVocabulary, kWidth);
  norm("output_norm");
  matrix("output", SyntheticLm::kVocabulary, kWidth);
  for (int i = 0; i < SyntheticLm::kLayers; ++i) {
    const auto name = [&](const char* what) { return fmt::format("blk.{}.{}", i, what); };
    norm(name("attn_norm"));
    matrix(name("attn_q"), kWidth, kWidth);
    matrix(name("attn_k"), kKeys, kWidth);
    matrix(name("attn_v"), kKeys, kWidth);
    matrix(name("attn_output"), kWidth, kWidth);
    norm(name("ffn_norm"));
    matrix(name("ffn_gate"), kFeedForward, kWidth);
    matrix(name("ffn_up"), kFeedForward, kWidth);
    matrix(name("ffn_down"), kWidth, kFeedForward);
  }
  const std::filesystem::path path = directory / fmt::format("lm-{}.gguf", name(dtype));
  file.write(path);
  return path;
}

class LmGraph final : public TrainableGraph {
 public:
  LmGraph(const SyntheticLm& lm, Adapter* adapter, const TrainableOptions& options, const Tensor& guard_weight)
      : sequences_(lm.sequences()),
        graph_(begin_loss_graph(lm.decoder(), adapter, limits(sequences_), options.gradients.has_value())) {
    if (options.guard_site) add_guard_site(lm.decoder(), *adapter, guard_weight);
    finish_loss_graph(*graph_, adapter, options.gradients);
  }

  const Graph& graph() const override { return graph_->graph; }
  ValueId loss() const override { return graph_->loss; }
  const Differentiation& differentiation() const override { return graph_->gradients; }
  int repeated_nodes() const override { return graph_->repeated_nodes; }

  // Padding lies behind the labels of the last sequence, and in a sequence of its own.
  Feed feed(const Items& items, int64_t padding) override {
    fill(batch_, sequences_, items);
    const int64_t trailing = padding / 2;
    const auto add = [&](int64_t count, int32_t position) {
      for (int64_t i = 0; i < count; ++i) {
        batch_.tokens.push_back(static_cast<int32_t>(SyntheticLm::kFirstByte + i));
        batch_.positions.push_back(position++);
        batch_.samples.push_back(0);
      }
    };
    if (padding > 0) {
      add(trailing, batch_.positions.back() + 1);
      batch_.offsets.back() = static_cast<int32_t>(batch_.tokens.size());
      add(padding - trailing, 0);
      batch_.offsets.push_back(static_cast<int32_t>(batch_.tokens.size()));
      batch_.first.push_back(0);
    }
    Feed feed{graph_->sizes(std::ssize(batch_.tokens), std::ssize(batch_.first), std::ssize(batch_.rows)),
              {{graph_->tokens, batch_.tokens.data()},
               {graph_->positions, batch_.positions.data()},
               {graph_->offsets, batch_.offsets.data()},
               {graph_->first, batch_.first.data()}}};
    const size_t fixed = feed.sizes.size() - graph_->supervised.size();
    int64_t row = 0;
    for (size_t i = 0; i < graph_->supervised.size(); ++i) {
      feed.inputs.emplace_back(graph_->supervised[i].rows, batch_.rows.data() + row);
      feed.inputs.emplace_back(graph_->supervised[i].labels, batch_.labels.data() + row);
      row += feed.sizes[fixed + i];
    }
    return feed;
  }

 private:
  static LossLimits limits(std::span<const Sequence> sequences) {
    LossLimits limits{TrainableModel::kMostPadding, std::ssize(sequences) + 1, 0};
    for (const Sequence& sequence : sequences) {
      limits.tokens += std::ssize(sequence.ids);
      limits.positions = std::max<int64_t>(limits.positions, std::ssize(sequence.ids) + TrainableModel::kMostPadding);
    }
    return limits;
  }

  // A second head on the supervised rows: loss += cross-entropy of the logits W [adapted gate h, frozen up h]. A LoKr
  // branch may make the gradient of its product dense again; that of the frozen product beside it stays a slice.
  void add_guard_site(const DecoderModel& model, Adapter& adapter, const Tensor& weight) {
    Graph& graph = graph_->graph;
    const int top = model.config().layers - 1;
    const DecoderLayer& layer = model.layers().back();
    const auto [rows, labels] = graph_->supervised.at(0);
    const ValueId h = gather_rows(graph, graph_->hidden, rows, "guard");
    const ValueId gate =
        adapter.linear(graph, h, graph.frozen("guard.gate", layer.gate), kNoValue, top, site_name(SiteName::kGate), {});
    const ValueId up = frozen_linear(graph, h, graph.frozen("guard.up", layer.up), kNoValue, "guard.up");
    const ValueId logits = frozen_linear(graph, side_by_side(graph, gate, up, "guard"),
                                         graph.frozen("guard.head", weight), kNoValue, "guard.head");
    graph_->loss = cross_entropy(graph, logits, labels, graph_->loss, "guard");
  }

  const std::span<const Sequence> sequences_;
  const std::unique_ptr<LossGraph> graph_;
  MicroBatch batch_;
};

}  // namespace

Sequence random_sequence(int length, int supervised_from, uint32_t stream) {
  const RandomStream random(4, RandomUse::kTest, stream);
  Sequence sequence;
  for (int i = 0; i < length; ++i) {
    sequence.ids.push_back(static_cast<int32_t>(random.below(SyntheticLm::kVocabulary, static_cast<uint64_t>(i))));
    sequence.supervised.push_back(i > 0 && i >= supervised_from);
  }
  sequence.sample = stream;
  return sequence;
}

SyntheticLm::SyntheticLm(DType dtype, const std::filesystem::path& directory, ThreadPool& pool)
    : model_(DecoderModel::load(written(dtype, directory, pool))),
      guard_weight_(synthetic_weight(dtype, kVocabulary, 2 * kFeedForward, 99, pool)) {
  uint32_t stream = 0;
  for (const int length : {5, 9, 2, 14}) sequences_.push_back(random_sequence(length, length / 3, stream++));
}

std::unique_ptr<TrainableGraph> SyntheticLm::build(Adapter* adapter, const TrainableOptions& options) const {
  const Tensor weight =
      dense(const_cast<std::byte*>(guard_weight_.data()), model_.head().dtype, {kVocabulary, 2 * kFeedForward});
  return std::make_unique<LmGraph>(*this, adapter, options, weight);
}

double SyntheticLm::exact_loss(std::span<const AdaptedSite> adapter, const Items& items) const {
  const PlainLm plain(model_, adapter);
  double loss = 0;
  for (const size_t item : items) loss += plain.loss(sequences_[item]);
  return loss;
}

std::vector<double> SyntheticLm::train(Adapter& adapter, const Course& course, const Backend& backend, ThreadPool& pool,
                                       FunctionRef<void(int64_t)> after_step) const {
  constexpr int kTogether = 2, kLength = 9, kPrompt = 3;  // sequences of a step, and their tokens
  const int64_t count = kTogether * (course.learnable ? 1 : course.steps);
  std::vector<Sequence> sequences;
  for (int64_t i = 0; i < count; ++i)
    sequences.push_back(random_sequence(kLength, kPrompt, static_cast<uint32_t>(100 + i)));
  LmTrainOptions options;
  options.batch_tokens = kTogether * kLength;
  options.steps = course.steps;
  options.learning_rate = course.learning_rate;
  options.schedule = Schedule::kConstant;
  options.gradients = course.gradients;
  return recorded_losses(lm_trainer(model_, adapter, sequences, {}, options, backend, pool), after_step);
}

AdapterBase SyntheticLm::base() const {
  AdapterBase base;
  base.name = "synthetic";
  base.architecture = model_.config().architecture;
  base.layers = kLayers;
  base.row_map = [this](int, std::string_view site) { return model_.row_map(site); };
  return base;
}

std::string SyntheticLm::module_of(const Site& site) const {
  static const std::map<std::string_view, std::string_view> kModules = {
      {"q", "self_attn.q_proj"}, {"k", "self_attn.k_proj"}, {"v", "self_attn.v_proj"}, {"o", "self_attn.o_proj"},
      {"gate", "mlp.gate_proj"}, {"up", "mlp.up_proj"},     {"down", "mlp.down_proj"}};
  if (site.layer < 0) return "lm_head";
  return fmt::format("model.layers.{}.{}", site.layer, kModules.at(site.name));
}

}  // namespace patina
