// The ACE-Step 1.5 diffusion transformer as it lies in its files: configuration, and frozen weights used in place.
// Source of names and settings: the public checkpoint, and AceStepTransformer1DModel of diffusers.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/sites.h"
#include "formats/model_files.h"
#include "graph/stream.h"
#include "tensor/tensor.h"

namespace patina {

// Letters as everywhere: D width, F feed_forward, H heads, G kv_heads, C head_width, E conditioning tokens; P patch.
struct DitConfig {
  int layers = 0;
  int64_t width = 0, feed_forward = 0, heads = 0, kv_heads = 0, head_width = 0;
  int64_t context_channels = 0;  // of a frame, beside the latent: 128
  int64_t latent_channels = 0;   // 64
  int64_t patch = 2;             // P frames make a token
  int64_t encoder_width = 0;     // of the conditioning: 2048
  int64_t window = 128;          // tokens to either side, in the windowed layers
  double rope_base = 1e6;
  float norm_eps = 1e-6f;
  bool turbo = false;
  std::vector<bool> windowed;  // by layer
  int64_t in_channels() const { return context_channels + latent_channels; }
};

inline constexpr int64_t kTimeChannels = 256;     // of the sinusoid of t
inline constexpr double kFramesPerSecond = 25.0;  // of latents
inline constexpr const char* kDitArchitecture = "acestep-dit";

// Weights of an attention; every W is [out,in], the norms [C] F32.
struct DitAttention {
  Tensor q, k, v, o;
  Tensor q_norm, k_norm;
};

struct DitLayer {
  Tensor self_norm, cross_norm, mlp_norm;  // [D] F32
  DitAttention self, cross;
  Tensor gate, up, down;
  Tensor modulation;  // [6 D] F32: shift, 1 + scale and gate of the attention, then of the MLP; t's part comes on top
  // The weights of its frozen products, in the order of their use.
  std::array<const Tensor*, 11> products() const {
    return {&self.q, &self.k, &self.v, &self.o, &cross.q, &cross.k, &cross.v, &cross.o, &gate, &up, &down};
  }
};

// A linear layer with a bias: W [out,in], bias [out] F32.
struct BiasedWeight {
  Tensor weight, bias;
};

struct TimeEmbedding {
  BiasedWeight first, second, projection;  // [D,256], [D,D], [6 D,D]
};

class DitModel {
 public:
  // Maps the files and checks every tensor's presence and shape: the original checkpoint's names, diffusers', or those
  // of GGUF files. Error(kModel) naming file and tensor: missing and misshapen tensors, unsupported settings.
  static DitModel load(const std::filesystem::path& path);
  DitModel(DitModel&&) noexcept = default;

  const DitConfig& config() const { return config_; }
  const ModelFiles& files() const { return files_; }
  std::span<const DitLayer> layers() const { return layers_; }
  const TimeEmbedding& time() const { return time_; }                   // of t
  const TimeEmbedding& time_difference() const { return difference_; }  // of t - r
  const BiasedWeight& patch_in() const { return patch_in_; }            // [D, in_channels * P]: channel, then frame
  const BiasedWeight& patch_out() const {
    return patch_out_;
  }  // [D, latents * P], from D: as x . W; bias [latents * P]
  const BiasedWeight& conditioning() const { return conditioning_; }      // [D, encoder_width]
  const Tensor& output_norm() const { return output_norm_; }              // [D]
  const Tensor& output_modulation() const { return output_modulation_; }  // [2 D] F32: shift, 1 + scale
  // The conditioning of nothing, [encoder_width]; empty where the files lack it (diffusers keeps it elsewhere).
  std::span<const float> null_conditioning() const { return null_conditioning_; }

  // All adaptable linear layers, bottom up.
  std::vector<Site> sites() const;
  // SHA-256 over the tensors of the transformer under the original checkpoint's names (formats/fingerprint.h).
  std::string fingerprint() const;
  int64_t weight_bytes() const { return weight_bytes_; }  // of the transformer's tensors
  int64_t parameters() const { return parameters_; }

 private:
  class Loader;
  explicit DitModel(ModelFiles files) : files_(std::move(files)) {}

  ModelFiles files_;
  DitConfig config_;
  std::vector<DitLayer> layers_;
  TimeEmbedding time_, difference_;
  BiasedWeight patch_in_, patch_out_, conditioning_;
  Tensor output_norm_, output_modulation_;
  std::vector<float> null_conditioning_;
  std::vector<std::unique_ptr<std::vector<float>>> decoded_;       // small tensors in F32
  std::vector<std::unique_ptr<std::vector<std::byte>>> aligned_;   // copies of weights that lie at odd addresses
  std::vector<std::pair<std::string, const ModelTensor*>> bound_;  // by canonical name
  int64_t weight_bytes_ = 0, parameters_ = 0;
};

// How the model's weights that a graph reads are streamed: about two layers of them in memory at a time.
StreamPlan plan_weight_stream(const Graph& graph, const DitModel& model);

// The original checkpoint's name of a tensor of the transformer, without ".1" after proj_in and proj_out:
// "decoder.layers.3.self_attn.q_proj.weight"; nullopt where it is none of it. Takes diffusers' and GGUF's names.
std::optional<std::string> canonical_dit_tensor(std::string_view name);

}  // namespace patina
