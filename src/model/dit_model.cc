#include "model/dit_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/fingerprint.h"
#include "formats/names.h"
#include "formats/printable.h"
#include "model/layer_stream.h"
#include "quant/decode.h"

namespace patina {

namespace {

constexpr std::string_view kDecoder = "decoder.";
constexpr std::string_view kNullConditioning = "null_condition_emb";

// Components of names that diffusers and GGUF files spell in another way than the original checkpoint.
struct Spelling {
  std::string_view other, original;
};
constexpr Spelling kSpellings[] = {
    {"to_q", "q_proj"},
    {"to_k", "k_proj"},
    {"to_v", "v_proj"},
    {"to_out.0", "o_proj"},
    {"norm_q", "q_norm"},
    {"norm_k", "k_norm"},
    {"proj_in_conv", "proj_in.1"},
    {"proj_out_conv", "proj_out.1"},
    {"proj_in", "proj_in.1"},
    {"proj_out", "proj_out.1"},
};
constexpr std::string_view kRoots[] = {"time_embed", "time_embed_r", "proj_in",  "condition_embedder",
                                       "layers",     "norm_out",     "proj_out", "scale_shift_table"};

// Replaces the component `from` of a dotted name, which may be several; whether it is there.
bool replace_component(std::string* name, std::string_view from, std::string_view to) {
  const std::string dotted = "." + *name + ".";
  const size_t at = dotted.find(fmt::format(".{}.", from));
  if (at == std::string::npos) return false;
  name->replace(at, from.size(), to);
  return true;
}

}  // namespace

std::optional<std::string> canonical_dit_tensor(std::string_view name) {
  if (name.starts_with(kDecoder)) name.remove_prefix(kDecoder.size());
  std::string canonical(name);
  for (const Spelling& spelling : kSpellings)
    if (std::string_view(canonical).find(spelling.original) == std::string_view::npos)
      replace_component(&canonical, spelling.other, spelling.original);
  const std::string_view root = std::string_view(canonical).substr(0, canonical.find('.'));
  if (std::ranges::find(kRoots, root) == std::end(kRoots)) return std::nullopt;
  return std::string(kDecoder) + canonical;
}

class DitModel::Loader {
 public:
  explicit Loader(DitModel& model) : model_(model), path_(model.files_.path().string()) {
    const bool prefixed = std::ranges::any_of(
        model.files_.tensors(), [](const ModelTensor& tensor) { return tensor.name.starts_with(kDecoder); });
    for (const ModelTensor& tensor : model.files_.tensors()) {
      if (prefixed && !tensor.name.starts_with(kDecoder)) continue;  // of the encoders beside it
      const auto canonical = canonical_dit_tensor(tensor.name);
      if (!canonical) continue;
      if (const auto [at, inserted] = tensors_.emplace(*canonical, &tensor); !inserted)
        fail(Error::Kind::kModel, "{}: tensors {} and {} are the same part of the model; expected one", path_,
             printable(at->second->name), printable(tensor.name));
    }
  }

  void load() {
    if (tensors_.empty())
      fail(Error::Kind::kModel,
           "{}: holds no tensor of the ACE-Step diffusion transformer, such as "
           "decoder.layers.0.self_attn.q_proj.weight; give the checkpoint's safetensors, its transformer in diffusers' "
           "form, or a GGUF file of it",
           path_);
    check_architecture();
    read_shapes();
    read_settings();
    bind();
    finish();
  }

 private:
  const ModelTensor* find(const std::string& name) const {
    const auto found = tensors_.find(std::string(kDecoder) + name);
    return found == tensors_.end() ? nullptr : found->second;
  }

  // Without the ones that some formats write first, others leave out.
  static std::vector<int64_t> dims_of(const ModelTensor& tensor) {
    std::vector<int64_t> dims(tensor.shape.dims().begin(), tensor.shape.dims().end());
    while (dims.size() > 1 && dims.front() == 1) dims.erase(dims.begin());
    return dims;
  }

  // A tensor from whose shape the configuration is read.
  std::vector<int64_t> require_dims(const std::string& name, size_t rank) const {
    const ModelTensor* tensor = find(name);
    if (tensor == nullptr)
      fail(Error::Kind::kModel, "{}: tensor {}{} is missing; the model is not complete, get its files again", path_,
           kDecoder, name);
    const std::vector<int64_t> dims = dims_of(*tensor);
    if (dims.size() != rank || std::ranges::any_of(dims, [](int64_t dim) { return dim < 1 || dim > (1 << 24); }))
      fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected {} dimensions; the file is damaged", path_,
           printable(tensor->name), tensor->shape.str(), rank);
    return dims;
  }

  void check_architecture() const {
    if (model_.files_.gguf() == nullptr) return;
    const std::string found = model_.files_.gguf()->string_or("general.architecture", kDitArchitecture);
    if (found != kDitArchitecture)
      fail(Error::Kind::kModel, "{}: general.architecture is {}, expected \"{}\"; use another model file", path_,
           printable(found), kDitArchitecture);
  }

  void read_shapes() {
    DitConfig& config = model_.config_;
    for (const auto& [name, tensor] : tensors_) {
      const std::string_view rest = std::string_view(name).substr(kDecoder.size());
      int layer = 0;
      if (!rest.starts_with("layers.")) continue;
      const auto [end, error] = std::from_chars(rest.data() + 7, rest.data() + rest.size(), layer);
      if (error == std::errc() && layer >= 0 && layer < 4096) config.layers = std::max(config.layers, layer + 1);
    }
    const std::vector<int64_t> conditioning = require_dims("condition_embedder.weight", 2);
    config.width = conditioning[0];
    config.encoder_width = conditioning[1];
    config.head_width = require_dims("layers.0.self_attn.q_norm.weight", 1)[0];
    const int64_t q = require_dims("layers.0.self_attn.q_proj.weight", 2)[0],
                  k = require_dims("layers.0.self_attn.k_proj.weight", 2)[0];
    config.heads = q / config.head_width;
    config.kv_heads = k / config.head_width;
    if (q % config.head_width != 0 || k % config.head_width != 0 || config.head_width % 2 != 0 ||
        config.kv_heads == 0 || config.heads % config.kv_heads != 0)
      fail(Error::Kind::kModel,
           "{}: q has {} rows and k {}, expected whole heads of even width {}, and a multiple of k's heads for q; the "
           "file is damaged",
           path_, q, k, config.head_width);
    config.feed_forward = require_dims("layers.0.mlp.gate_proj.weight", 2)[0];
    const std::vector<int64_t> in = require_dims("proj_in.1.weight", 3), out = require_dims("proj_out.1.weight", 3);
    config.patch = in[2];
    config.latent_channels = out[1];
    config.context_channels = in[1] - out[1];
    if (config.context_channels < 0 || out[2] != config.patch)
      fail(Error::Kind::kModel,
           "{}: proj_in has {} channels and patches of {}, proj_out {} and {}; expected the latents' channels among "
           "those of the input, and equal patches; the file is damaged",
           path_, in[1], in[2], out[1], out[2]);
  }

  // What shapes do not tell, from metadata or config.json; what they do tell is compared.
  void read_settings() {
    DitConfig& config = model_.config_;
    struct Size {
      const char *gguf, *json;
      int64_t value;
    };
    const Size sizes[] = {
        {"acestep-dit.block_count", "num_hidden_layers", config.layers},
        {"acestep-dit.embedding_length", "hidden_size", config.width},
        {"acestep-dit.feed_forward_length", "intermediate_size", config.feed_forward},
        {"acestep-dit.attention.head_count", "num_attention_heads", config.heads},
        {"acestep-dit.attention.head_count_kv", "num_key_value_heads", config.kv_heads},
        {"acestep-dit.attention.key_length", "head_dim", config.head_width},
        {"acestep.in_channels", "in_channels", config.in_channels()},
        {"acestep.audio_acoustic_hidden_dim", "audio_acoustic_hidden_dim", config.latent_channels},
        {"acestep.patch_size", "patch_size", config.patch},
        {"acestep.encoder_hidden_size", "encoder_hidden_size", config.encoder_width},
    };
    for (const Size& size : sizes)
      if (const double told = number(size.gguf, size.json, static_cast<double>(size.value));
          told != static_cast<double>(size.value))
        fail(Error::Kind::kModel, "{}: {} is {}, but the tensors have {}; the model's files do not belong together",
             path_, key(size.gguf, size.json), told, size.value);
    config.rope_base = number("acestep-dit.rope.freq_base", "rope_theta", config.rope_base);
    config.norm_eps = static_cast<float>(
        number("acestep-dit.attention.layer_norm_rms_epsilon", "rms_norm_eps", static_cast<double>(config.norm_eps)));
    const double window = number("acestep.sliding_window", "sliding_window", static_cast<double>(config.window));
    config.window = window >= 1 && window < 1e9 ? static_cast<int64_t>(window) : 0;
    if (!(config.rope_base > 1 && std::isfinite(config.rope_base) && config.norm_eps > 0 && config.norm_eps < 1) ||
        config.window < 1)
      fail(Error::Kind::kModel, "{}: rope base {}, epsilon {} or window {} is out of range; the file is damaged", path_,
           config.rope_base, config.norm_eps, window);
    const nlohmann::json& json = model_.files_.config();
    if (const GgufFile* gguf = model_.files_.gguf())
      config.turbo = gguf->bool_or("acestep.is_turbo", false);
    else if (const auto turbo = json.is_object() ? json.find("is_turbo") : json.end(); turbo != json.end())
      config.turbo = turbo->is_boolean() && turbo->get<bool>();
    for (int i = 0; i < config.layers; ++i) config.windowed.push_back(i % 2 == 0);
    read_layer_types(json);
  }

  void read_layer_types(const nlohmann::json& json) {
    const auto types = json.is_object() ? json.find("layer_types") : json.end();
    if (types == json.end() || types->is_null()) return;
    DitConfig& config = model_.config_;
    const auto refuse = [&](const std::string& found) {
      fail(Error::Kind::kModel,
           "{}: layer_types is {}, expected sliding_attention or full_attention for each of {} layers",
           (model_.files_.path().parent_path() / "config.json").string(), printable(found), config.layers);
    };
    if (!types->is_array() || std::ssize(*types) != config.layers) refuse(types->dump());
    for (int i = 0; i < config.layers; ++i) {
      const nlohmann::json& type = types->at(static_cast<size_t>(i));
      if (type != "sliding_attention" && type != "full_attention") refuse(type.dump());
      config.windowed[static_cast<size_t>(i)] = type == "sliding_attention";
    }
  }

  std::string key(const char* gguf, const char* json) const {
    return model_.files_.gguf() != nullptr ? gguf : fmt::format("{} of config.json", json);
  }

  double number(const char* gguf_key, const char* json_key, double fallback) const {
    if (const GgufFile* gguf = model_.files_.gguf()) {
      if (!gguf->has(gguf_key)) return fallback;
      return std::holds_alternative<GgufScalar>(gguf->metadata().find(gguf_key)->second)
                 ? numeric(*gguf, gguf_key)
                 : gguf->require_float(gguf_key);
    }
    const nlohmann::json& json = model_.files_.config();
    if (!json.is_object()) return fallback;
    const auto found = json.find(json_key);
    if (found == json.end() || found->is_null()) return fallback;
    if (!found->is_number())
      fail(Error::Kind::kModel, "{}: {} is {}, expected a number",
           (model_.files_.path().parent_path() / "config.json").string(), json_key, printable(found->dump()));
    return found->get<double>();
  }

  static double numeric(const GgufFile& gguf, const char* key) {
    const auto& scalar = std::get<GgufScalar>(gguf.metadata().find(key)->second);
    if (std::holds_alternative<double>(scalar)) return gguf.require_float(key);
    return static_cast<double>(gguf.require_int(key));
  }

  void complain(const std::string& text) { complaints_.push_back(text); }

  // The tensor, with as many numbers as `rows` x `columns`, whose first dimension is `rows`; null with a complaint.
  const ModelTensor* take(const std::string& name, int64_t rows, int64_t columns) {
    const ModelTensor* tensor = find(name);
    if (tensor == nullptr) {
      complain(fmt::format("{}{} is missing", kDecoder, name));
      return nullptr;
    }
    const std::vector<int64_t> dims = dims_of(*tensor);
    if (dims.front() != rows || tensor->shape.elements() != rows * columns) {
      complain(fmt::format("{} has shape {}, expected [{}, {}]", printable(tensor->name), tensor->shape.str(), rows,
                           columns));
      return nullptr;
    }
    if (!is_decodable(tensor->dtype)) {
      complain(fmt::format("{} has type {}, which cannot be computed with", printable(tensor->name),
                           patina::name(tensor->dtype)));
      return nullptr;
    }
    model_.bound_.emplace_back(std::string(kDecoder) + name, tensor);
    return tensor;
  }

  Tensor matrix(const std::string& name, int64_t rows, int64_t columns) {
    const ModelTensor* tensor = take(name, rows, columns);
    if (tensor == nullptr) return {};
    const std::byte* data = tensor->data;
    if (reinterpret_cast<uintptr_t>(data) %
                static_cast<size_t>(std::min<int64_t>(info(tensor->dtype).block_bytes, 4)) !=
            0 &&
        info(tensor->dtype).block_values == 1) {
      model_.aligned_.push_back(std::make_unique<std::vector<std::byte>>(data, data + tensor->bytes));
      data = model_.aligned_.back()->data();
    }
    return dense(const_cast<std::byte*>(data), tensor->dtype, Shape{rows, columns});
  }

  // A small tensor in F32.
  Tensor vector(const std::string& name, int64_t rows, int64_t columns = 1) {
    const ModelTensor* tensor = take(name, rows, columns);
    if (tensor == nullptr) return {};
    const int64_t count = rows * columns;
    std::vector<std::byte> stored(tensor->data, tensor->data + tensor->bytes);  // where it lies, it may be unaligned
    std::vector<float>& values =
        *model_.decoded_.emplace_back(std::make_unique<std::vector<float>>(static_cast<size_t>(count)));
    decode_row(tensor->dtype)(stored.data(), 0, count, values.data());
    return dense(values.data(), DType::kF32, Shape{count});
  }

  BiasedWeight biased(const std::string& name, int64_t rows, int64_t columns) {
    return {matrix(name + ".weight", rows, columns), vector(name + ".bias", rows)};
  }

  TimeEmbedding time(const std::string& name) {
    const int64_t d = model_.config_.width;
    return {biased(name + ".linear_1", d, kTimeChannels), biased(name + ".linear_2", d, d),
            biased(name + ".time_proj", 6 * d, d)};
  }

  DitAttention attention(const std::string& name) {
    const DitConfig& config = model_.config_;
    const int64_t d = config.width, q = config.heads * config.head_width, kv = config.kv_heads * config.head_width;
    return {matrix(name + ".q_proj.weight", q, d),
            matrix(name + ".k_proj.weight", kv, d),
            matrix(name + ".v_proj.weight", kv, d),
            matrix(name + ".o_proj.weight", d, q),
            vector(name + ".q_norm.weight", config.head_width),
            vector(name + ".k_norm.weight", config.head_width)};
  }

  // A table of shifts, scales and gates, with 1 + scale in the place of each scale.
  Tensor modulation(const std::string& name, int64_t parts, std::initializer_list<int64_t> scales) {
    const int64_t d = model_.config_.width;
    Tensor table = vector(name, parts, d);
    if (table.present())
      for (const int64_t part : scales)
        for (int64_t j = 0; j < d; ++j) table.f32()[part * d + j] += 1.0f;
    return table;
  }

  void bind() {
    const DitConfig& config = model_.config_;
    const int64_t d = config.width, f = config.feed_forward;
    model_.time_ = time("time_embed");
    model_.difference_ = time("time_embed_r");
    model_.patch_in_ = biased("proj_in.1", d, config.in_channels() * config.patch);
    model_.conditioning_ = biased("condition_embedder", d, config.encoder_width);
    for (int i = 0; i < config.layers; ++i) {
      const std::string name = fmt::format("layers.{}.", i);
      DitLayer layer;
      layer.self_norm = vector(name + "self_attn_norm.weight", d);
      layer.self = attention(name + "self_attn");
      layer.cross_norm = vector(name + "cross_attn_norm.weight", d);
      layer.cross = attention(name + "cross_attn");
      layer.mlp_norm = vector(name + "mlp_norm.weight", d);
      layer.gate = matrix(name + "mlp.gate_proj.weight", f, d);
      layer.up = matrix(name + "mlp.up_proj.weight", f, d);
      layer.down = matrix(name + "mlp.down_proj.weight", d, f);
      layer.modulation = modulation(name + "scale_shift_table", 6, {1, 4});
      model_.layers_.push_back(layer);
    }
    model_.output_norm_ = vector("norm_out.weight", d);
    model_.output_modulation_ = modulation("scale_shift_table", 2, {1});
    model_.patch_out_.weight = matrix("proj_out.1.weight", d, config.latent_channels * config.patch);
    const Tensor bias = vector("proj_out.1.bias", config.latent_channels);
    if (bias.present()) {  // of every frame of a patch
      std::vector<float>& values = *model_.decoded_.emplace_back(
          std::make_unique<std::vector<float>>(static_cast<size_t>(config.latent_channels * config.patch)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = bias.f32()[static_cast<int64_t>(i) / config.patch];
      model_.patch_out_.bias = dense(values.data(), DType::kF32, Shape{std::ssize(values)});
    }
  }

  void finish() {
    for (const auto& [name, tensor] : tensors_)
      if (name.find("_proj.bias") != std::string::npos && name.find("time_proj") == std::string::npos)
        complain(fmt::format("{}: biases of attention and MLP are not supported", printable(tensor->name)));
    if (!complaints_.empty())
      fail(Error::Kind::kModel, "{}: does not hold the transformer that its shapes tell of: {}; get its files again",
           path_, listed(complaints_));
    for (const auto& [name, tensor] : model_.bound_) {
      model_.weight_bytes_ += tensor->bytes;
      model_.parameters_ += tensor->shape.elements();
    }
    read_null_conditioning(model_.files_);
    // diffusers keeps it with the condition encoder.
    const std::filesystem::path beside = model_.files_.path().parent_path().parent_path() / "condition_encoder";
    std::error_code ignored;
    if (model_.null_conditioning_.empty() && std::filesystem::is_directory(beside, ignored))
      read_null_conditioning(ModelFiles::open(beside));
  }

  void read_null_conditioning(const ModelFiles& files) {
    for (const ModelTensor& tensor : files.tensors()) {
      const std::string_view name = tensor.name;
      if (name != kNullConditioning && !name.ends_with(fmt::format(".{}", kNullConditioning))) continue;
      if (tensor.shape.elements() != model_.config_.encoder_width || !is_decodable(tensor.dtype))
        fail(Error::Kind::kModel, "{}: tensor {} has shape {} of type {}, expected {} numbers", files.path().string(),
             printable(name), tensor.shape.str(), patina::name(tensor.dtype), model_.config_.encoder_width);
      const std::vector<std::byte> stored(tensor.data, tensor.data + tensor.bytes);
      model_.null_conditioning_.resize(static_cast<size_t>(tensor.shape.elements()));
      decode_row(tensor.dtype)(stored.data(), 0, tensor.shape.elements(), model_.null_conditioning_.data());
    }
  }

  DitModel& model_;
  const std::string path_;
  std::map<std::string, const ModelTensor*> tensors_;  // by canonical name
  std::vector<std::string> complaints_;
};

DitModel DitModel::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path inner = path / "transformer";  // of a pipeline in diffusers' form
  DitModel model(ModelFiles::open(std::filesystem::is_directory(inner, ignored) ? inner : path));
  Loader(model).load();
  return model;
}

std::vector<Site> DitModel::sites() const {
  std::vector<Site> sites;
  const std::vector<SiteName> names = sites_of(ModelFamily::kDit);
  for (int i = 0; i < config_.layers; ++i) {
    const auto products = layers_[static_cast<size_t>(i)].products();
    PATINA_CHECK(names.size() == products.size(), "{} sites, {} products", names.size(), products.size());
    for (size_t s = 0; s < names.size(); ++s) {
      const Tensor& weight = *products[s];
      sites.push_back({i, std::string(site_name(names[s])), weight.shape[1], weight.shape[0], weight});
    }
  }
  return sites;
}

std::string DitModel::fingerprint() const {
  std::vector<NamedTensorBytes> tensors;
  for (const auto& [name, tensor] : bound_) {
    std::vector<int64_t> dims(tensor->shape.dims().begin(), tensor->shape.dims().end());
    while (dims.size() > 1 && dims.front() == 1) dims.erase(dims.begin());  // which some formats leave out
    tensors.push_back({name,
                       patina::name(tensor->dtype),
                       Shape(std::span<const int64_t>(dims)),
                       {tensor->data, static_cast<size_t>(tensor->bytes)}});
  }
  // What is no weight of a layer and decides the result all the same.
  std::vector<double> numbers = {config_.rope_base, static_cast<double>(config_.norm_eps),
                                 static_cast<double>(config_.window)};
  for (const bool windowed : config_.windowed) numbers.push_back(windowed ? 1.0 : 0.0);
  tensors.push_back({"config", "F64", Shape{std::ssize(numbers)}, std::as_bytes(std::span(numbers))});
  return model_fingerprint(tensors);
}

StreamPlan plan_weight_stream(const Graph& graph, const DitModel& model) {
  return plan_layer_stream(graph, model.files().maps(), model.layers());
}

}  // namespace patina
