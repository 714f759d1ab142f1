#include "support/tiny_dit.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "quant/encode.h"

namespace patina::testing {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct NamedTensor {
  std::string name;  // the original checkpoint's
  Shape shape;
  std::vector<float> values;
  DType dtype;
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::vector<float> values_of(const std::string& name, const Shape& shape) {
  const int64_t count = shape.elements();
  if (contains(name, "norm")) return named_floats(name, count, 0.3, 1.0);
  if (shape.rank() == 1) return named_floats(name, count, 0.2);
  if (contains(name, "scale_shift_table")) return named_floats(name, count, 0.5);
  const int64_t fan_in = contains(name, "proj_out") ? shape[0] : count / shape[0];
  return named_floats(name, count, std::sqrt(3.0 / static_cast<double>(fan_in)));
}

std::vector<NamedTensor> tensors_of(const TinyDit& m) {
  std::vector<NamedTensor> tensors;
  const auto add = [&](const std::string& name, Shape shape, bool matrix = false) {
    const std::vector<float> values = values_of("decoder." + name, shape);
    tensors.push_back({"decoder." + name, shape, values, matrix ? m.dtype : DType::kF32});
  };
  const auto biased = [&](const std::string& name, const Shape& shape, int64_t biases) {
    add(name + ".weight", shape);
    add(name + ".bias", {biases});
  };
  const int64_t d = m.width, q = m.heads * m.head_width, kv = m.kv_heads * m.head_width;
  for (const std::string name : {"time_embed", "time_embed_r"}) {
    biased(name + ".linear_1", {d, 256}, d);
    biased(name + ".linear_2", {d, d}, d);
    biased(name + ".time_proj", {6 * d, d}, 6 * d);
  }
  biased("proj_in.1", {d, m.context_channels + m.latent_channels, 2}, d);
  biased("condition_embedder", {d, m.encoder_width}, d);
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    for (const std::string attention : {"self_attn", "cross_attn"}) {
      add(layer + attention + "_norm.weight", {d});
      add(layer + attention + ".q_proj.weight", {q, d}, true);
      add(layer + attention + ".k_proj.weight", {kv, d}, true);
      add(layer + attention + ".v_proj.weight", {kv, d}, true);
      add(layer + attention + ".o_proj.weight", {d, q}, true);
      add(layer + attention + ".q_norm.weight", {m.head_width});
      add(layer + attention + ".k_norm.weight", {m.head_width});
    }
    add(layer + "mlp_norm.weight", {d});
    add(layer + "mlp.gate_proj.weight", {m.feed_forward, d}, true);
    add(layer + "mlp.up_proj.weight", {m.feed_forward, d}, true);
    add(layer + "mlp.down_proj.weight", {d, m.feed_forward}, true);
    add(layer + "scale_shift_table", {1, 6, d});
  }
  add("norm_out.weight", {d});
  add("scale_shift_table", {1, 2, d});
  biased("proj_out.1", {d, m.latent_channels, 2}, m.latent_channels);
  if (m.null_conditioning) {
    const Shape shape{1, 1, m.encoder_width};
    tensors.push_back(
        {"null_condition_emb", shape, named_floats("null_condition_emb", m.encoder_width, 0.5), DType::kF32});
  }
  std::erase_if(tensors, [&](NamedTensor& tensor) { return m.edit && !m.edit(tensor.name, tensor.shape); });
  return tensors;
}

std::string diffusers_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"decoder.", ""},
                                                                      {"q_proj", "to_q"},
                                                                      {"k_proj", "to_k"},
                                                                      {"v_proj", "to_v"},
                                                                      {"o_proj", "to_out.0"},
                                                                      {"q_norm", "norm_q"},
                                                                      {"k_norm", "norm_k"},
                                                                      {"proj_in.1", "proj_in_conv"},
                                                                      {"proj_out.1", "proj_out_conv"}};
  for (const auto& [ours, theirs] : kNames)
    if (const size_t at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
  return name;
}

std::vector<std::byte> stored(const NamedTensor& tensor) {
  const int64_t count = tensor.shape.elements();
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(tensor.dtype, count)));
  encode_row(tensor.dtype)(tensor.values.data(), count, bytes.data());
  return bytes;
}

json config_of(const TinyDit& m) {
  return {{"hidden_size", m.width},
          {"intermediate_size", m.feed_forward},
          {"num_hidden_layers", m.layers},
          {"num_attention_heads", m.heads},
          {"num_key_value_heads", m.kv_heads},
          {"head_dim", m.head_width},
          {"in_channels", m.context_channels + m.latent_channels},
          {"audio_acoustic_hidden_dim", m.latent_channels},
          {"patch_size", 2},
          {"rope_theta", m.rope_base},
          {"rms_norm_eps", m.norm_eps},
          {"sliding_window", m.window},
          {"encoder_hidden_size", m.encoder_width}};
}

fs::path write_gguf(const fs::path& path, const TinyDit& m) {
  GgufWriter writer;
  const auto set = [&](const char* key, int64_t value) { writer.set(key, static_cast<uint32_t>(value)); };
  writer.set("general.architecture", "acestep-dit");
  set("acestep-dit.block_count", m.layers);
  set("acestep-dit.embedding_length", m.width);
  set("acestep-dit.feed_forward_length", m.feed_forward);
  set("acestep-dit.attention.head_count", m.heads);
  set("acestep-dit.attention.head_count_kv", m.kv_heads);
  set("acestep-dit.attention.key_length", m.head_width);
  writer.set("acestep-dit.rope.freq_base", static_cast<float>(m.rope_base));
  writer.set("acestep-dit.attention.layer_norm_rms_epsilon", static_cast<float>(m.norm_eps));
  set("acestep.in_channels", m.context_channels + m.latent_channels);
  set("acestep.audio_acoustic_hidden_dim", m.latent_channels);
  set("acestep.patch_size", 2);
  set("acestep.sliding_window", m.window);
  set("acestep.encoder_hidden_size", m.encoder_width);
  writer.set("acestep.is_turbo", true);
  for (const NamedTensor& tensor : tensors_of(m)) {
    std::string name = tensor.name;
    if (const size_t at = name.find(".1."); at != std::string::npos && contains(name, "proj_out")) name.erase(at, 2);
    writer.add_tensor(name, tensor.dtype, tensor.shape, stored(tensor));
  }
  const fs::path file = fs::path(path).replace_extension(".gguf");
  writer.write(file);
  return file;
}

}  // namespace

std::vector<double> named_numbers(std::string_view name, int64_t count) {
  uint32_t seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 16777619u;
  std::vector<double> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B1u + seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    numbers[i] = static_cast<double>(x) / 0x1p31 - 1.0;
  }
  return numbers;
}

std::vector<float> named_floats(std::string_view name, int64_t count, double scale, double offset) {
  std::vector<float> floats;
  for (const double number : named_numbers(name, count)) floats.push_back(static_cast<float>(offset + scale * number));
  return floats;
}

fs::path write_tiny_dit(const fs::path& path, const TinyDit& model) {
  if (model.form == TinyDit::Form::kGguf) return write_gguf(path, model);
  const bool diffusers = model.form == TinyDit::Form::kDiffusers, sharded = model.form == TinyDit::Form::kSharded;
  const bool directory = diffusers || sharded;
  if (directory) fs::create_directories(path);
  SafetensorsWriter shards[2];
  json map = json::object();
  int count = 0;
  for (const NamedTensor& tensor : tensors_of(model)) {
    const std::string name = diffusers ? diffusers_name(tensor.name) : tensor.name;
    const int shard = sharded ? count++ % 2 : 0;
    shards[shard].add(name, tensor.dtype, tensor.shape, stored(tensor));
    map[name] = fmt::format("model-{}.safetensors", shard);
  }
  write_file((directory ? path : path.parent_path()) / "config.json", config_of(model).dump());
  if (!sharded) {
    const fs::path file = directory ? path / "diffusion_pytorch_model.safetensors" : path;
    shards[0].write(file);
    return directory ? path : file;
  }
  for (int shard = 0; shard < 2; ++shard) shards[shard].write(path / fmt::format("model-{}.safetensors", shard));
  write_file(path / "model.safetensors.index.json", json{{"weight_map", map}}.dump());
  return path;
}

}  // namespace patina::testing
