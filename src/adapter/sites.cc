#include "adapter/sites.h"

#include <algorithm>

namespace patina {

std::string site_label(int layer, std::string_view site) {
  return layer < 0 ? std::string(site) : fmt::format("layers.{}.{}", layer, site);
}

std::vector<Site> select_sites(std::span<const Site> all, const std::set<std::string>& names, int top_layers) {
  int layers = 0;
  std::set<std::string> known;
  for (const Site& site : all) {
    layers = std::max(layers, site.layer + 1);
    known.insert(site.name);
  }
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  for (const std::string& name : names)
    if (!known.contains(name))
      fail(Error::Kind::kUsage, "the model has no layer \"{}\" to adapt; it has {}", name, list);
  if (top_layers < 0 || top_layers > layers)
    fail(Error::Kind::kUsage, "cannot adapt the last {} layers: the model has {}; choose 1 to {}, or 0 for all",
         top_layers, layers, layers);
  const int first = top_layers == 0 ? 0 : layers - top_layers;
  std::vector<Site> chosen;
  for (const Site& site : all)
    if (names.contains(site.name) && (site.layer < 0 || site.layer >= first)) chosen.push_back(site);
  return chosen;
}

}  // namespace patina
