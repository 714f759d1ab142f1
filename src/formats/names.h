// The sites of a model's linear products, and what GGUF and Hugging Face files call them. One table; names match whole
// components ("attn_q" is not part of "attn_q_norm").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace patina {

// Whose modules: a decoder-only language model's, or the ACE-Step diffusion transformer's.
enum class ModelFamily : uint8_t { kDecoder, kDit };

// In the order of the table, which is the order in which sites are listed, stored and initialised everywhere.
enum class SiteName {
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kSelfQ,
  kSelfK,
  kSelfV,
  kSelfO,
  kCrossQ,
  kCrossK,
  kCrossV,
  kCrossO,
  kMlpGate,
  kMlpUp,
  kMlpDown,
  kLmHead
};

// A site of one layer; the output head belongs to none.
inline constexpr int kNoLayer = -1;
struct SitePlace {
  SiteName site;
  int layer;
  bool operator==(const SitePlace&) const = default;
};

std::string_view site_name(SiteName site);  // canonical: "q", "cross.q", ..., "lm_head"
ModelFamily family_of(SiteName site);
std::vector<SiteName> sites_of(ModelFamily family);  // in the order of the table

// By its canonical name.
std::optional<SiteName> site_from_name(std::string_view name);
// Whether the site goes by a canonical, GGUF or Hugging Face name, or by the last part of one: "q", "attn_q" or
// "q_proj"; in a DiT "cross.q", "cross_attn.q_proj", and "q" or "q_proj" with which self.q answers too.
bool answers_to(SiteName site, std::string_view alias);

// Names of the frozen weight: "blk.3.attn_q.weight", "output.weight"; "model.layers.3.self_attn.q_proj", "lm_head"; of
// a DiT "decoder.layers.3.self_attn.q_proj.weight", "layers.3.self_attn.q_proj". `layer` is kNoLayer for lm_head and
// only there.
std::string gguf_tensor_name(SiteName site, int layer);
std::string hf_module_path(SiteName site, int layer);
// The path's end that tells the site within a layer: "q_proj"; of a DiT, where two sites end so, "self_attn.q_proj".
std::string hf_module_end(SiteName site);

// The inverse; nullopt for any other name. A module path may begin with PEFT's "base_model.model.".
std::optional<SitePlace> parse_gguf_tensor_name(std::string_view name, ModelFamily family);
std::optional<SitePlace> parse_hf_module_path(std::string_view path, ModelFamily family);

// A comma-separated list of aliases and of groups, as a set in table order: "all" (all but lm_head), "attn" and "mlp";
// of a DiT's attention also "self" and "cross". Error(kUsage) names an unknown item and lists the known ones.
std::vector<SiteName> parse_sites(std::string_view list, ModelFamily family);

}  // namespace patina
