// A decoder-only language model as it lies in its file: configuration, and frozen weights used in place.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter.h"
#include "formats/gguf.h"
#include "graph/stream.h"
#include "model/rope_table.h"
#include "tensor/tensor.h"

namespace patina {

// Letters as everywhere: D width, F feed_forward, H heads, G kv_heads, C head_width, V vocabulary.
struct DecoderConfig {
  std::string architecture;  // "llama"
  int layers = 0;
  int64_t width = 0, feed_forward = 0, heads = 0, kv_heads = 0, head_width = 0, vocabulary = 0;
  int64_t context_tokens = 0;  // the longest sequence the model was made for
  float norm_eps = 0.0f;
  double rope_base = 10000.0;
  double rope_position_scale = 1.0;  // positions are multiplied by it (linear scaling: 1 / factor)
  std::vector<float> rope_divisors;  // [C/2] each frequency is divided by (Llama 3 scaling); empty = ones
  RopeSpec rope() const { return {head_width, rope_base, rope_position_scale, rope_divisors}; }
  bool paired_qk_rows = false;  // the file stores the rows of q and k in rope pairs (llama-family GGUF)
};

// Weights of one layer; every W is [out,in], every norm [D] F32.
struct DecoderLayer {
  Tensor attention_norm, q, k, v, o;
  Tensor feed_forward_norm, gate, up, down;
  // The weights of its frozen products, in the order of their use.
  std::array<const Tensor*, 7> products() const { return {&q, &k, &v, &o, &gate, &up, &down}; }
};

// An architecture: how a family's files are read. One row of a table in decoder_model.cc, one file under model/arch.
struct DecoderFamily {
  std::string_view name;  // general.architecture
  DecoderConfig (*read_config)(const GgufFile& file);
};
const DecoderFamily& llama_family();

class DecoderModel {
 public:
  // Maps the file and checks every tensor's presence and shape. Error(kModel): unknown architecture (with the list of
  // known ones), missing or misshapen tensors, unsupported settings, each by name.
  static DecoderModel load(const std::filesystem::path& path);

  const DecoderConfig& config() const { return config_; }
  const GgufFile& file() const { return *file_; }
  std::span<const DecoderLayer> layers() const { return layers_; }
  const Tensor& embedding() const { return embedding_; }      // [V,D]
  const Tensor& output_norm() const { return output_norm_; }  // [D]
  const Tensor& head() const { return head_; }                // [V,D]; the embedding where tied
  bool tied_head() const { return head_.data == embedding_.data; }

  // All adaptable linear layers, bottom up; lm_head last and only where it is untied.
  std::vector<Site> sites() const;
  // Stored row of each row of a site's W in Hugging Face order; empty = the same order.
  std::span<const int32_t> row_map(std::string_view site) const;
  // SHA-256 over names, types, shapes and ends of all tensors (formats/fingerprint.h).
  std::string fingerprint() const;

 private:
  std::unique_ptr<GgufFile> file_;
  DecoderConfig config_;
  std::vector<DecoderLayer> layers_;
  Tensor embedding_, output_norm_, head_;
  std::vector<int32_t> q_rows_, k_rows_;
  std::vector<std::unique_ptr<std::vector<float>>> decoded_norms_;
};

// How the model's weights that a graph reads are streamed: about two layers of them in memory at a time.
StreamPlan plan_weight_stream(const Graph& graph, const DecoderModel& model);

}  // namespace patina
