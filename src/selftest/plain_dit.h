// The ACE-Step diffusion transformer and its flow-matching loss in plain loops and double precision, written from the
// architecture's description: the oracle of losses. It shares no code with the graph, the ops, the adapters or the
// loader; it reads the model's files by the original checkpoint's names.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "formats/model_files.h"
#include "model/dit_model.h"

namespace patina {

// "layers.0.self_attn.q_proj" of layer 0 and "self.q".
std::string plain_dit_module(int layer, std::string_view site);

// A song, or a window of one, at time t of the way from its latents to noise.
struct PlainSong {
  int64_t frames;
  double t;
  std::vector<double> latents, noise;   // [frames, latent channels]
  std::vector<double> context;          // [frames, context channels]
  std::vector<double> conditioning;     // [E, encoder width]
  std::vector<double> channel_weights;  // [latent channels], of its squared errors
};

class PlainDit {
 public:
  // Of the configuration it takes heads, window, rope and epsilon.
  PlainDit(const ModelFiles& files, const DitConfig& config, std::span<const AdaptedSite> adapter);
  // Sum over frames and channels of weight * (velocity - (noise - latents))^2.
  double loss(const PlainSong& song) const;

 private:
  using Numbers = std::vector<double>;
  // [frames, latent channels]
  Numbers velocity(const PlainSong& song, const Numbers& noisy) const;
  void add_layer(Numbers& h, const Numbers& conditioning, const Numbers& time, int index) const;

  const Numbers& tensor(const std::string& name) const { return tensors_.at("decoder." + name); }
  Numbers product(const Numbers& x, const std::string& name, int64_t in) const;
  Numbers biased(const Numbers& x, const std::string& name, int64_t in) const;
  Numbers norm(const Numbers& x, const std::string& name) const;
  // norm(x) (1 + scale) + shift, by rows of a table of t [parts, D].
  Numbers modulated(const Numbers& x, const std::string& name, const Numbers& table, int shift, int scale) const;
  Numbers attention(const Numbers& x, const Numbers& y, const std::string& name, bool rope, bool windowed) const;

  const DitConfig& config_;
  std::map<std::string, Numbers> tensors_;
};

}  // namespace patina
