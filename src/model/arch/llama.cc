// The llama family: Llama 2 and 3, SmolLM2, Mistral without sliding window. Metadata keys: GGUF specification, "[llm]"
// section.
#include <utility>

#include "model/decoder_model.h"

namespace patina {

namespace {

void refuse(const GgufFile& file, std::string_view key, std::string_view found, std::string_view supported) {
  fail(Error::Kind::kModel, "{}: {} is \"{}\", which is not supported (supported: {}); use another model file",
       file.path().string(), key, found, supported);
}

DecoderConfig read_config(const GgufFile& file) {
  DecoderConfig config;
  config.architecture = "llama";
  const int64_t layers = file.require_int("llama.block_count");
  if (!std::in_range<int>(layers)) refuse(file, "llama.block_count", std::to_string(layers), "a number of layers");
  config.layers = static_cast<int>(layers);
  config.width = file.require_int("llama.embedding_length");
  config.feed_forward = file.require_int("llama.feed_forward_length");
  config.heads = file.require_int("llama.attention.head_count");
  config.kv_heads = file.int_or("llama.attention.head_count_kv", config.heads);
  config.context_tokens = file.require_int("llama.context_length");
  config.norm_eps = static_cast<float>(file.require_float("llama.attention.layer_norm_rms_epsilon"));
  config.rope_base = file.float_or("llama.rope.freq_base", 10000.0);
  config.head_width = file.int_or("llama.attention.key_length", config.heads > 0 ? config.width / config.heads : 0);
  config.paired_qk_rows = true;

  if (const int64_t experts = file.int_or("llama.expert_count", 0); experts > 0)
    refuse(file, "llama.expert_count", std::to_string(experts), "0: no mixture of experts");
  if (const int64_t window = file.int_or("llama.attention.sliding_window", 0); window > 0)
    refuse(file, "llama.attention.sliding_window", std::to_string(window), "none");
  const int64_t rotated = file.int_or("llama.rope.dimension_count", config.head_width);
  if (rotated != config.head_width)
    refuse(file, "llama.rope.dimension_count", std::to_string(rotated),
           fmt::format("the head width, {}", config.head_width));
  // A factor without a type is linear; older files have only scale_linear, without a type.
  const std::string scaling = file.string_or("llama.rope.scaling.type", "linear");
  const char* factor = file.has("llama.rope.scale_linear") ? "llama.rope.scale_linear" : "llama.rope.scaling.factor";
  if (scaling == "linear" && (file.has("llama.rope.scaling.type") || file.has(factor)))
    config.rope_position_scale = 1.0 / file.require_float(factor);
  if (scaling != "linear" && scaling != "none")
    refuse(file, "llama.rope.scaling.type", scaling,
           "none, linear; Llama 3 scaling through the tensor rope_freqs.weight");
  return config;
}

}  // namespace

const DecoderFamily& llama_family() {
  static constexpr DecoderFamily kFamily{"llama", read_config};
  return kFamily;
}

}  // namespace patina
