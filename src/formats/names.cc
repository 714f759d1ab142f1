#include "formats/names.h"

#include <charconv>
#include <span>

#include "base/error.h"

namespace patina {
namespace {

enum class Group { kAttn, kMlp, kHead };

struct Row {
  SiteName site;
  Group group;
  std::string_view name;
  std::string_view gguf;       // between "blk.N." and ".weight"; of the head, all before ".weight"
  std::string_view hf_parent;  // between "model.layers.N." and the module; empty for the head
  std::string_view hf;
};

constexpr Row kTable[] = {
    {SiteName::kQ, Group::kAttn, "q", "attn_q", "self_attn", "q_proj"},
    {SiteName::kK, Group::kAttn, "k", "attn_k", "self_attn", "k_proj"},
    {SiteName::kV, Group::kAttn, "v", "attn_v", "self_attn", "v_proj"},
    {SiteName::kO, Group::kAttn, "o", "attn_output", "self_attn", "o_proj"},
    {SiteName::kGate, Group::kMlp, "gate", "ffn_gate", "mlp", "gate_proj"},
    {SiteName::kUp, Group::kMlp, "up", "ffn_up", "mlp", "up_proj"},
    {SiteName::kDown, Group::kMlp, "down", "ffn_down", "mlp", "down_proj"},
    {SiteName::kLmHead, Group::kHead, "lm_head", "output", "", "lm_head"},
};

consteval bool rows_follow_enum() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].site) != i) return false;
  }
  return true;
}
static_assert(rows_follow_enum(), "row() indexes the table by site");

const Row& row(SiteName site) { return kTable[static_cast<size_t>(site)]; }

bool take_prefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool take_suffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

// "12." at the start of the text; only the spelling that we write ourselves.
std::optional<int> take_layer(std::string_view* text) {
  int layer = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), layer);
  const auto digits = static_cast<size_t>(end - text->data());
  if (error != std::errc() || layer < 0 || text->substr(0, digits) != fmt::to_string(layer)) return std::nullopt;
  text->remove_prefix(digits);
  if (!take_prefix(text, ".")) return std::nullopt;
  return layer;
}

void check_layer(SiteName site, int layer) {
  PATINA_CHECK((site == SiteName::kLmHead) == (layer == kNoLayer) && layer >= kNoLayer, "site {} layer {}",
               site_name(site), layer);
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::string known_names() {
  std::string names = "all, attn, mlp";
  for (const Row& r : kTable)
    if (r.site != SiteName::kLmHead) names += fmt::format(", {}", r.name);
  return names;
}

}  // namespace

std::string_view site_name(SiteName site) { return row(site).name; }

std::optional<SiteName> site_from_alias(std::string_view alias) {
  for (const Row& r : kTable) {
    if (alias == r.name || alias == r.gguf || alias == r.hf) return r.site;
  }
  return std::nullopt;
}

std::string gguf_tensor_name(SiteName site, int layer) {
  check_layer(site, layer);
  if (layer == kNoLayer) return fmt::format("{}.weight", row(site).gguf);
  return fmt::format("blk.{}.{}.weight", layer, row(site).gguf);
}

std::string hf_module_path(SiteName site, int layer) {
  check_layer(site, layer);
  if (layer == kNoLayer) return std::string(row(site).hf);
  return fmt::format("model.layers.{}.{}.{}", layer, row(site).hf_parent, row(site).hf);
}

std::optional<SitePlace> parse_gguf_tensor_name(std::string_view name) {
  if (!take_suffix(&name, ".weight")) return std::nullopt;
  if (name == row(SiteName::kLmHead).gguf) return SitePlace{SiteName::kLmHead, kNoLayer};
  if (!take_prefix(&name, "blk.")) return std::nullopt;
  const auto layer = take_layer(&name);
  if (!layer) return std::nullopt;
  for (const Row& r : kTable) {
    if (r.group != Group::kHead && name == r.gguf) return SitePlace{r.site, *layer};
  }
  return std::nullopt;
}

std::optional<SitePlace> parse_hf_module_path(std::string_view path) {
  take_prefix(&path, "base_model.model.");
  if (path == row(SiteName::kLmHead).hf) return SitePlace{SiteName::kLmHead, kNoLayer};
  if (!take_prefix(&path, "model.layers.")) return std::nullopt;
  const auto layer = take_layer(&path);
  if (!layer) return std::nullopt;
  for (const Row& r : kTable) {
    std::string_view rest = path;
    if (r.group != Group::kHead && take_prefix(&rest, r.hf_parent) && take_prefix(&rest, ".") && rest == r.hf) {
      return SitePlace{r.site, *layer};
    }
  }
  return std::nullopt;
}

std::vector<SiteName> parse_sites(std::string_view list) {
  bool chosen[std::size(kTable)] = {};
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trim(list.substr(begin, end - begin));
    begin = end + 1;
    const bool all = item == "all";
    bool known = false;
    for (const Row& r : kTable) {
      const bool in_group =
          (r.group == Group::kAttn && (all || item == "attn")) || (r.group == Group::kMlp && (all || item == "mlp"));
      if (in_group || site_from_alias(item) == r.site) known = chosen[static_cast<size_t>(r.site)] = true;
    }
    if (!known) {
      fail(Error::Kind::kUsage, "sites \"{}\": \"{}\" is not a site; choose from {} (comma-separated)", list, item,
           known_names());
    }
  }
  std::vector<SiteName> sites;
  for (const Row& r : kTable) {
    if (chosen[static_cast<size_t>(r.site)]) sites.push_back(r.site);
  }
  return sites;
}

}  // namespace patina
