#include "model/decoder_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/fingerprint.h"
#include "formats/names.h"
#include "model/layer_stream.h"
#include "quant/decode.h"

namespace patina {

namespace {

const DecoderFamily& find_family(const GgufFile& file) {
  const std::array families{&llama_family()};
  const std::string name = file.require_string("general.architecture");
  std::string known;
  for (const DecoderFamily* family : families) {
    if (family->name == name) return *family;
    known += (known.empty() ? "" : ", ") + std::string(family->name);
  }
  fail(Error::Kind::kModel, "{}: architecture \"{}\" is not supported (supported: {})", file.path().string(), name,
       known);
}

void check_config(const DecoderConfig& config, const std::string& path) {
  const auto require = [&](bool holds, std::string_view what, int64_t found) {
    if (!holds) fail(Error::Kind::kModel, "{}: {} is {}; the file is damaged or of an unknown kind", path, what, found);
  };
  constexpr int64_t kMost = int64_t{1} << 24;  // far above any model; keeps products of sizes in range
  require(config.layers > 0 && config.layers < 4096, "block_count", config.layers);
  require(config.width > 0 && config.width < kMost, "embedding_length", config.width);
  require(config.feed_forward > 0 && config.feed_forward < kMost, "feed_forward_length", config.feed_forward);
  require(config.heads > 0 && config.heads < 65536, "attention.head_count", config.heads);
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0, "attention.head_count_kv", config.kv_heads);
  require(config.head_width > 0 && config.head_width % 2 == 0 && config.head_width < 65536, "head width",
          config.head_width);
  require(config.context_tokens > 0, "context_length", config.context_tokens);
  require(config.norm_eps > 0.0f && config.norm_eps < 1.0f, "layer_norm_rms_epsilon x 1e9",
          static_cast<int64_t>(static_cast<double>(config.norm_eps) * 1e9));
  if (!(config.rope_base > 1.0 && std::isfinite(config.rope_base)) ||
      !(config.rope_position_scale > 0.0 && std::isfinite(config.rope_position_scale)))
    fail(Error::Kind::kModel, "{}: rope base {} and position scale {} are out of range", path, config.rope_base,
         config.rope_position_scale);
}

// Rows of `heads` heads stored as rope pairs: row j of a head's first half lies at 2j, of its second half at 2j + 1.
std::vector<int32_t> paired_rows(int64_t heads, int64_t width) {
  std::vector<int32_t> map(static_cast<size_t>(heads * width));
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t j = 0; j < width / 2; ++j) {
      map[static_cast<size_t>(h * width + j)] = static_cast<int32_t>(h * width + 2 * j);
      map[static_cast<size_t>(h * width + width / 2 + j)] = static_cast<int32_t>(h * width + 2 * j + 1);
    }
  return map;
}

const GgufTensor& require_tensor(const GgufFile& file, const std::string& name, const Shape& shape) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr)
    fail(Error::Kind::kModel, "{}: tensor {} is missing; expected shape {}", file.path().string(), name, shape.str());
  if (!(tensor->shape == shape))
    fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected {}", file.path().string(), name,
         tensor->shape.str(), shape.str());
  if (!is_decodable(tensor->dtype))
    fail(Error::Kind::kModel,
         "{}: tensor {} has type {}, which cannot be computed with; use the model in another type, such as Q4_K, Q8_0 "
         "or F16",
         file.path().string(), name, patina::name(tensor->dtype));
  return *tensor;
}

Tensor frozen_tensor(const GgufTensor& tensor) {
  return dense(const_cast<std::byte*>(tensor.data), tensor.dtype, tensor.shape);
}

}  // namespace

DecoderModel DecoderModel::load(const std::filesystem::path& path) {
  DecoderModel model;
  model.file_ = std::make_unique<GgufFile>(GgufFile::open(path));
  const GgufFile& file = *model.file_;
  if (file.string_or("general.type", "model") == "adapter")
    fail(Error::Kind::kModel,
         "{}: expected a model, found an adapter; give it with --adapter, and the model it was "
         "trained on with --model",
         path.string());
  model.config_ = find_family(file).read_config(file);
  DecoderConfig& config = model.config_;
  check_config(config, path.string());

  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2)
    fail(Error::Kind::kModel, "{}: tensor token_embd.weight is missing or not two-dimensional", path.string());
  config.vocabulary = embedding->shape[0];
  const int64_t d = config.width, f = config.feed_forward, q_rows = config.heads * config.head_width,
                kv_rows = config.kv_heads * config.head_width;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    return frozen_tensor(require_tensor(file, name, Shape{rows, columns}));
  };
  const auto norm = [&](const std::string& name) {
    const GgufTensor& tensor = require_tensor(file, name, Shape{d});
    if (tensor.dtype == DType::kF32) return frozen_tensor(tensor);
    model.decoded_norms_.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(d)));
    decode_row(tensor.dtype)(tensor.data, 0, d, model.decoded_norms_.back()->data());
    return dense(model.decoded_norms_.back()->data(), DType::kF32, Shape{d});
  };
  model.embedding_ = matrix("token_embd.weight", config.vocabulary, d);
  model.output_norm_ = norm("output_norm.weight");
  model.head_ =
      file.find_tensor("output.weight") != nullptr ? matrix("output.weight", config.vocabulary, d) : model.embedding_;
  if (config.paired_qk_rows) {
    model.q_rows_ = paired_rows(config.heads, config.head_width);
    model.k_rows_ = paired_rows(config.kv_heads, config.head_width);
  }
  for (int i = 0; i < config.layers; ++i) {
    const auto weight = [&](SiteName site, int64_t rows, int64_t columns) {
      Tensor tensor = matrix(gguf_tensor_name(site, i), rows, columns);
      if (const std::span<const int32_t> map = model.row_map(site_name(site)); !map.empty())
        tensor.row_map = map.data();
      return tensor;
    };
    DecoderLayer layer;
    layer.attention_norm = norm(fmt::format("blk.{}.attn_norm.weight", i));
    layer.q = weight(SiteName::kQ, q_rows, d);
    layer.k = weight(SiteName::kK, kv_rows, d);
    layer.v = weight(SiteName::kV, kv_rows, d);
    layer.o = weight(SiteName::kO, d, q_rows);
    layer.feed_forward_norm = norm(fmt::format("blk.{}.ffn_norm.weight", i));
    layer.gate = weight(SiteName::kGate, f, d);
    layer.up = weight(SiteName::kUp, f, d);
    layer.down = weight(SiteName::kDown, d, f);
    model.layers_.push_back(layer);
  }
  if (file.find_tensor("rope_freqs.weight") != nullptr) {
    const GgufTensor& divisors = require_tensor(file, "rope_freqs.weight", Shape{config.head_width / 2});
    config.rope_divisors.resize(static_cast<size_t>(config.head_width / 2));
    decode_row(divisors.dtype)(divisors.data, 0, config.head_width / 2, config.rope_divisors.data());
    for (const float divisor : config.rope_divisors)
      if (!(divisor > 0.0f && std::isfinite(divisor)))
        fail(Error::Kind::kModel,
             "{}: tensor rope_freqs.weight holds {}, expected positive numbers; the file is damaged", path.string(),
             divisor);
  }
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.ends_with(".bias"))
      fail(Error::Kind::kModel, "{}: tensor {}: biases are not supported for architecture {}; use another model file",
           path.string(), tensor.name, config.architecture);
  return model;
}

std::vector<Site> DecoderModel::sites() const {
  std::vector<Site> sites;
  const auto add = [&](int layer, SiteName site, const Tensor& weight) {
    sites.push_back({layer, std::string(site_name(site)), weight.shape[1], weight.shape[0], weight});
  };
  for (int i = 0; i < config_.layers; ++i) {
    const DecoderLayer& layer = layers_[static_cast<size_t>(i)];
    add(i, SiteName::kQ, layer.q);
    add(i, SiteName::kK, layer.k);
    add(i, SiteName::kV, layer.v);
    add(i, SiteName::kO, layer.o);
    add(i, SiteName::kGate, layer.gate);
    add(i, SiteName::kUp, layer.up);
    add(i, SiteName::kDown, layer.down);
  }
  if (!tied_head()) add(kNoLayer, SiteName::kLmHead, head_);
  return sites;
}

std::span<const int32_t> DecoderModel::row_map(std::string_view site) const {
  if (site == site_name(SiteName::kQ)) return q_rows_;
  if (site == site_name(SiteName::kK)) return k_rows_;
  return {};
}

std::string DecoderModel::fingerprint() const { return model_fingerprint(*file_); }

StreamPlan plan_weight_stream(const Graph& graph, const DecoderModel& model) {
  const std::span<const std::byte> file = model.file().mapped();
  return plan_layer_stream(graph, std::span(&file, 1), model.layers());
}

}  // namespace patina
