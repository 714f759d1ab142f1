// The sites of a decoder's linear products, and what GGUF and Hugging Face files call them. One table; names match
// whole components ("attn_q" is not part of "attn_q_norm").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace patina {

// In the order of the table, which is the order in which sites are listed, stored and initialised everywhere.
enum class SiteName { kQ, kK, kV, kO, kGate, kUp, kDown, kLmHead };

// A site of one layer; the output head belongs to none.
inline constexpr int kNoLayer = -1;
struct SitePlace {
  SiteName site;
  int layer;
  bool operator==(const SitePlace&) const = default;
};

std::string_view site_name(SiteName site);  // canonical: "q", ..., "lm_head"

// A canonical, GGUF or Hugging Face name of a site: "q", "attn_q" or "q_proj".
std::optional<SiteName> site_from_alias(std::string_view alias);

// Names of the frozen weight: "blk.3.attn_q.weight", "output.weight"; "model.layers.3.self_attn.q_proj", "lm_head".
// `layer` is kNoLayer for lm_head and only there.
std::string gguf_tensor_name(SiteName site, int layer);
std::string hf_module_path(SiteName site, int layer);

// The inverse; nullopt for any other name. A module path may begin with PEFT's "base_model.model.".
std::optional<SitePlace> parse_gguf_tensor_name(std::string_view name);
std::optional<SitePlace> parse_hf_module_path(std::string_view path);

// A comma-separated list of aliases and of the groups "attn" (q, k, v, o), "mlp" (gate, up, down) and "all" (both,
// never lm_head), as a set in table order. Error(kUsage) names an unknown item and lists the known ones.
std::vector<SiteName> parse_sites(std::string_view list);

}  // namespace patina
