#include "formats/names.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace patina {
namespace {

enum class Group { kAttn, kSelf, kCross, kMlp, kHead };

struct Row {
  SiteName site;
  ModelFamily family;
  Group group;
  std::string_view name;
  std::string_view gguf;       // between the layer and ".weight"; of the head, all before ".weight"
  std::string_view hf_parent;  // between the layer and the module; empty for the head
  std::string_view hf;
};

constexpr ModelFamily kLm = ModelFamily::kDecoder, kDit = ModelFamily::kDit;
constexpr Row kTable[] = {
    {SiteName::kQ, kLm, Group::kAttn, "q", "attn_q", "self_attn", "q_proj"},
    {SiteName::kK, kLm, Group::kAttn, "k", "attn_k", "self_attn", "k_proj"},
    {SiteName::kV, kLm, Group::kAttn, "v", "attn_v", "self_attn", "v_proj"},
    {SiteName::kO, kLm, Group::kAttn, "o", "attn_output", "self_attn", "o_proj"},
    {SiteName::kGate, kLm, Group::kMlp, "gate", "ffn_gate", "mlp", "gate_proj"},
    {SiteName::kUp, kLm, Group::kMlp, "up", "ffn_up", "mlp", "up_proj"},
    {SiteName::kDown, kLm, Group::kMlp, "down", "ffn_down", "mlp", "down_proj"},
    {SiteName::kSelfQ, kDit, Group::kSelf, "self.q", "self_attn.q_proj", "self_attn", "q_proj"},
    {SiteName::kSelfK, kDit, Group::kSelf, "self.k", "self_attn.k_proj", "self_attn", "k_proj"},
    {SiteName::kSelfV, kDit, Group::kSelf, "self.v", "self_attn.v_proj", "self_attn", "v_proj"},
    {SiteName::kSelfO, kDit, Group::kSelf, "self.o", "self_attn.o_proj", "self_attn", "o_proj"},
    {SiteName::kCrossQ, kDit, Group::kCross, "cross.q", "cross_attn.q_proj", "cross_attn", "q_proj"},
    {SiteName::kCrossK, kDit, Group::kCross, "cross.k", "cross_attn.k_proj", "cross_attn", "k_proj"},
    {SiteName::kCrossV, kDit, Group::kCross, "cross.v", "cross_attn.v_proj", "cross_attn", "v_proj"},
    {SiteName::kCrossO, kDit, Group::kCross, "cross.o", "cross_attn.o_proj", "cross_attn", "o_proj"},
    {SiteName::kMlpGate, kDit, Group::kMlp, "mlp.gate", "mlp.gate_proj", "mlp", "gate_proj"},
    {SiteName::kMlpUp, kDit, Group::kMlp, "mlp.up", "mlp.up_proj", "mlp", "up_proj"},
    {SiteName::kMlpDown, kDit, Group::kMlp, "mlp.down", "mlp.down_proj", "mlp", "down_proj"},
    {SiteName::kLmHead, kLm, Group::kHead, "lm_head", "output", "", "lm_head"},
};

consteval bool rows_follow_enum() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].site) != i) return false;
  }
  return true;
}
static_assert(rows_follow_enum(), "row() indexes the table by site");

const Row& row(SiteName site) { return kTable[static_cast<size_t>(site)]; }

// What stands before the layer's number.
constexpr std::string_view gguf_prefix(ModelFamily family) { return family == kLm ? "blk." : "decoder.layers."; }
constexpr std::string_view hf_prefix(ModelFamily family) { return family == kLm ? "model.layers." : "layers."; }

// A group of sites that a list may name.
struct GroupName {
  std::string_view name;
  bool (*holds)(Group group);
};
constexpr GroupName kGroups[] = {
    {"all", [](Group group) { return group != Group::kHead; }},
    {"attn", [](Group group) { return group == Group::kAttn || group == Group::kSelf || group == Group::kCross; }},
    {"self", [](Group group) { return group == Group::kSelf; }},
    {"cross", [](Group group) { return group == Group::kCross; }},
    {"mlp", [](Group group) { return group == Group::kMlp; }},
};

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

std::string known_names(ModelFamily family) {
  std::string names;
  const auto add = [&](std::string_view name) { names += (names.empty() ? "" : ", ") + std::string(name); };
  for (const GroupName& group : kGroups)
    if (std::ranges::any_of(kTable, [&](const Row& r) { return r.family == family && group.holds(r.group); }))
      add(group.name);
  for (const Row& r : kTable)
    if (r.family == family && r.group != Group::kHead) add(r.name);
  return names;
}

}  // namespace

std::string_view site_name(SiteName site) { return row(site).name; }

ModelFamily family_of(SiteName site) { return row(site).family; }

std::vector<SiteName> sites_of(ModelFamily family) {
  std::vector<SiteName> sites;
  for (const Row& r : kTable)
    if (r.family == family) sites.push_back(r.site);
  return sites;
}

std::optional<SiteName> site_from_name(std::string_view name) {
  for (const Row& r : kTable)
    if (name == r.name) return r.site;
  return std::nullopt;
}

bool answers_to(SiteName site, std::string_view alias) {
  const Row& r = row(site);
  return alias == r.name || alias == r.gguf || alias == r.hf || alias == r.name.substr(r.name.rfind('.') + 1);
}

std::string gguf_tensor_name(SiteName site, int layer) {
  check_layer(site, layer);
  if (layer == kNoLayer) return fmt::format("{}.weight", row(site).gguf);
  return fmt::format("{}{}.{}.weight", gguf_prefix(row(site).family), layer, row(site).gguf);
}

std::string hf_module_path(SiteName site, int layer) {
  check_layer(site, layer);
  if (layer == kNoLayer) return std::string(row(site).hf);
  return fmt::format("{}{}.{}.{}", hf_prefix(row(site).family), layer, row(site).hf_parent, row(site).hf);
}

std::string hf_module_end(SiteName site) {
  const Row& r = row(site);
  return r.family == kDit ? fmt::format("{}.{}", r.hf_parent, r.hf) : std::string(r.hf);
}

std::optional<SitePlace> parse_gguf_tensor_name(std::string_view name, ModelFamily family) {
  if (!take_suffix(&name, ".weight")) return std::nullopt;
  if (family == kLm && name == row(SiteName::kLmHead).gguf) return SitePlace{SiteName::kLmHead, kNoLayer};
  if (!take_prefix(&name, gguf_prefix(family))) return std::nullopt;
  const auto layer = take_layer(&name);
  if (!layer) return std::nullopt;
  for (const Row& r : kTable) {
    if (r.family == family && r.group != Group::kHead && name == r.gguf) return SitePlace{r.site, *layer};
  }
  return std::nullopt;
}

std::optional<SitePlace> parse_hf_module_path(std::string_view path, ModelFamily family) {
  take_prefix(&path, "base_model.model.");
  if (family == kLm && path == row(SiteName::kLmHead).hf) return SitePlace{SiteName::kLmHead, kNoLayer};
  if (!take_prefix(&path, hf_prefix(family))) return std::nullopt;
  const auto layer = take_layer(&path);
  if (!layer) return std::nullopt;
  for (const Row& r : kTable) {
    std::string_view rest = path;
    if (r.family == family && r.group != Group::kHead && take_prefix(&rest, r.hf_parent) && take_prefix(&rest, ".") &&
        rest == r.hf) {
      return SitePlace{r.site, *layer};
    }
  }
  return std::nullopt;
}

std::vector<SiteName> parse_sites(std::string_view list, ModelFamily family) {
  bool chosen[std::size(kTable)] = {};
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trim(list.substr(begin, end - begin));
    begin = end + 1;
    const auto* group = std::ranges::find(kGroups, item, &GroupName::name);
    bool known = false;
    for (const Row& r : kTable) {
      if (r.family != family) continue;
      if ((group != std::end(kGroups) && group->holds(r.group)) || answers_to(r.site, item))
        known = chosen[static_cast<size_t>(r.site)] = true;
    }
    if (!known) {
      fail(Error::Kind::kUsage, "sites \"{}\": \"{}\" is not a site; choose from {} (comma-separated)", list, item,
           known_names(family));
    }
  }
  std::vector<SiteName> sites;
  for (const Row& r : kTable) {
    if (chosen[static_cast<size_t>(r.site)]) sites.push_back(r.site);
  }
  return sites;
}

}  // namespace patina
