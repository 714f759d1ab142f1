#include "selftest/plain_dit.h"

#include <cmath>
#include <cstdlib>

#include "quant/decode.h"
#include "selftest/plain.h"

namespace patina {

namespace {

using Numbers = std::vector<double>;

void add(Numbers& to, const Numbers& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

Numbers silu(Numbers x) {
  for (double& value : x) value /= 1.0 + std::exp(-value);
  return x;
}

// [256]
Numbers sinusoid(double t) {
  constexpr size_t kHalf = 128;
  Numbers x(2 * kHalf);
  for (size_t i = 0; i < kHalf; ++i) {
    const double angle = 1000.0 * t * std::pow(10000.0, -static_cast<double>(i) / kHalf);
    x[i] = std::cos(angle);
    x[kHalf + i] = std::sin(angle);
  }
  return x;
}

}  // namespace

std::string plain_dit_module(int layer, std::string_view site) {
  static const std::map<std::string_view, std::string_view> kModules = {
      {"self.q", "self_attn.q_proj"},   {"self.k", "self_attn.k_proj"},   {"self.v", "self_attn.v_proj"},
      {"self.o", "self_attn.o_proj"},   {"cross.q", "cross_attn.q_proj"}, {"cross.k", "cross_attn.k_proj"},
      {"cross.v", "cross_attn.v_proj"}, {"cross.o", "cross_attn.o_proj"}, {"mlp.gate", "mlp.gate_proj"},
      {"mlp.up", "mlp.up_proj"},        {"mlp.down", "mlp.down_proj"}};
  return fmt::format("layers.{}.{}", layer, kModules.at(site));
}

PlainDit::PlainDit(const ModelFiles& files, const DitConfig& config, std::span<const AdaptedSite> adapter)
    : config_(config) {
  for (const ModelTensor& stored : files.tensors()) {
    const int64_t count = stored.shape.elements();
    std::vector<float> floats(static_cast<size_t>(count));
    decode_row(stored.dtype)(stored.data, 0, count, floats.data());
    tensors_[stored.name].assign(floats.begin(), floats.end());
  }
  for (const AdaptedSite& site : adapter)
    add_adapter(tensors_.at("decoder." + plain_dit_module(site.layer, site.site) + ".weight"), site);
}

Numbers PlainDit::product(const Numbers& x, const std::string& name, int64_t in) const {
  return plain_product(x, tensor(name + ".weight"), in);
}

Numbers PlainDit::biased(const Numbers& x, const std::string& name, int64_t in) const {
  const Numbers& bias = tensor(name + ".bias");
  Numbers y = product(x, name, in);
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  return y;
}

Numbers PlainDit::norm(const Numbers& x, const std::string& name) const {
  return plain_norm(x, tensor(name + ".weight"), static_cast<double>(config_.norm_eps));
}

Numbers PlainDit::modulated(const Numbers& x, const std::string& name, const Numbers& table, int shift,
                            int scale) const {
  const size_t width = static_cast<size_t>(config_.width);
  Numbers y = norm(x, name);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = y[i] * (1.0 + table[static_cast<size_t>(scale) * width + i % width]) +
           table[static_cast<size_t>(shift) * width + i % width];
  return y;
}

// Queries of x, keys and values of y, both [.., D].
Numbers PlainDit::attention(const Numbers& x, const Numbers& y, const std::string& name, bool rope,
                            bool windowed) const {
  const auto [heads, kv, width] = PlainHeads{config_.heads, config_.kv_heads, config_.head_width};
  Numbers q = norm(product(x, name + ".q_proj", config_.width), name + ".q_norm"),
          k = norm(product(y, name + ".k_proj", config_.width), name + ".k_norm");
  if (rope) {
    plain_rotate(q, heads, width, config_.rope_base);
    plain_rotate(k, kv, width, config_.rope_base);
  }
  const Numbers mixed =
      plain_attention(q, k, product(y, name + ".v_proj", config_.width), {heads, kv, width},
                      [&](int64_t t, int64_t s) { return !windowed || std::abs(t - s) <= config_.window; });
  return product(mixed, name + ".o_proj", heads * width);
}

void PlainDit::add_layer(Numbers& h, const Numbers& conditioning, const Numbers& time, int index) const {
  const std::string name = fmt::format("layers.{}.", index);
  const size_t width = static_cast<size_t>(config_.width);
  Numbers table = tensor(name + "scale_shift_table");
  add(table, time);
  const auto add_gated = [&](const Numbers& x, size_t gate) {
    for (size_t i = 0; i < h.size(); ++i) h[i] += table[gate * width + i % width] * x[i];
  };
  const Numbers a = modulated(h, name + "self_attn_norm", table, 0, 1);
  add_gated(attention(a, a, name + "self_attn", true, index % 2 == 0), 2);
  add(h, attention(norm(h, name + "cross_attn_norm"), conditioning, name + "cross_attn", false, false));
  const Numbers m = modulated(h, name + "mlp_norm", table, 3, 4);
  Numbers gate = product(m, name + "mlp.gate_proj", config_.width);
  plain_swiglu(gate, product(m, name + "mlp.up_proj", config_.width));
  add_gated(product(gate, name + "mlp.down_proj", config_.feed_forward), 5);
}

Numbers PlainDit::velocity(const PlainSong& song, const Numbers& noisy) const {
  constexpr int64_t kPatch = 2;
  const int64_t around = config_.context_channels, latents = config_.latent_channels, all = around + latents,
                width = config_.width, tokens = (song.frames + kPatch - 1) / kPatch;
  // Convolution of kernel and stride 2: a row has both frames of each channel.
  Numbers patches(static_cast<size_t>(tokens * all * kPatch));
  for (int64_t f = 0; f < song.frames; ++f)
    for (int64_t c = 0; c < all; ++c)
      patches[static_cast<size_t>((f / kPatch * all + c) * kPatch + f % kPatch)] =
          c < around ? song.context[static_cast<size_t>(f * around + c)]
                     : noisy[static_cast<size_t>(f * latents + c - around)];
  Numbers embedding, time;
  for (const auto& [name, t] : {std::pair<std::string, double>{"time_embed", song.t}, {"time_embed_r", 0.0}}) {
    constexpr int64_t kChannels = 256;
    const Numbers one =
        biased(silu(biased(sinusoid(t), name + ".linear_1", kChannels)), name + ".linear_2", config_.width);
    const Numbers parts = biased(silu(one), name + ".time_proj", config_.width);
    embedding.resize(one.size());
    time.resize(parts.size());
    add(embedding, one);
    add(time, parts);
  }
  Numbers h = biased(patches, "proj_in.1", all * kPatch);
  const Numbers conditioning = biased(song.conditioning, "condition_embedder", config_.encoder_width);
  for (int i = 0; i < config_.layers; ++i) add_layer(h, conditioning, time, i);
  Numbers table = tensor("scale_shift_table");
  for (size_t i = 0; i < table.size(); ++i) table[i] += embedding[i % embedding.size()];
  const Numbers last = modulated(h, "norm_out", table, 0, 1);
  // Transposed convolution of kernel and stride 2, cut to the frames.
  const Numbers &weight = tensor("proj_out.1.weight"), &bias = tensor("proj_out.1.bias");
  Numbers velocity(static_cast<size_t>(song.frames * latents));
  for (int64_t f = 0; f < song.frames; ++f)
    for (int64_t c = 0; c < latents; ++c) {
      double sum = bias[static_cast<size_t>(c)];
      for (int64_t d = 0; d < width; ++d)
        sum += last[static_cast<size_t>(f / kPatch * width + d)] *
               weight[static_cast<size_t>((d * latents + c) * kPatch + f % kPatch)];
      velocity[static_cast<size_t>(f * latents + c)] = sum;
    }
  return velocity;
}

double PlainDit::loss(const PlainSong& song) const {
  Numbers noisy(song.latents.size());
  for (size_t i = 0; i < noisy.size(); ++i) noisy[i] = song.t * song.noise[i] + (1.0 - song.t) * song.latents[i];
  const Numbers got = velocity(song, noisy);
  double loss = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = got[i] - (song.noise[i] - song.latents[i]);
    loss += song.channel_weights[i % song.channel_weights.size()] * error * error;
  }
  return loss;
}

}  // namespace patina
