#include "adapter/sites.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "formats/names.h"

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

namespace {

bool matches_glob(std::string_view glob, std::string_view text) {
  if (glob.empty()) return text.empty();
  if (glob[0] == '*')
    return matches_glob(glob.substr(1), text) || (!text.empty() && matches_glob(glob, text.substr(1)));
  return !text.empty() && (glob[0] == '?' || glob[0] == text[0]) && matches_glob(glob.substr(1), text.substr(1));
}

bool matches(std::string_view glob, const Site& site) {
  const auto name = site_from_name(site.name);
  return (name && answers_to(*name, glob)) || matches_glob(glob, site_label(site.layer, site.name));
}

}  // namespace

SiteNumbers::SiteNumbers(std::string_view flag, std::string_view text) : flag_(flag) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = item.find('=');
    double number = 0.0;
    if (equals != std::string_view::npos) {
      const auto [stop, error] = std::from_chars(item.data() + equals + 1, item.data() + item.size(), number);
      if (error != std::errc() || stop != item.data() + item.size()) number = 0.0;
    }
    if (equals == 0 || !(number > 0 && std::isfinite(number)))
      fail(Error::Kind::kUsage,
           "{} \"{}\": expected PATTERN=NUMBER with a positive number, such as layers.*.q=32 or down=8", flag, item);
    patterns_.push_back({std::string(item.substr(0, equals)), number});
  }
}

std::optional<double> SiteNumbers::at(const Site& site) const {
  for (const Pattern& pattern : patterns_)
    if (matches(pattern.glob, site)) return pattern.number;
  return std::nullopt;
}

void SiteNumbers::check_all_match(std::span<const Site> sites) const {
  for (const Pattern& pattern : patterns_)
    if (std::ranges::none_of(sites, [&](const Site& site) { return matches(pattern.glob, site); }))
      fail(Error::Kind::kUsage, "{}: the pattern \"{}\" matches none of the adapted layers; they are named as {}",
           flag_, pattern.glob, sites.empty() ? "layers.0.q" : site_label(sites.front().layer, sites.front().name));
}

std::vector<FittedSite> in_model_order(std::span<const Site> sites, std::span<const AdaptedSite> adapted,
                                       const std::string& source) {
  const auto is_at = [](const Site& site, const AdaptedSite& one) {
    return site.layer == one.layer && site.name == one.site;
  };
  std::vector<std::string> complaints;
  for (const AdaptedSite& one : adapted) {
    const std::string label = site_label(one.layer, one.site);
    const auto site = std::ranges::find_if(sites, [&](const Site& s) { return is_at(s, one); });
    if (site == sites.end())
      complaints.push_back(fmt::format("{} is not in the model", label));
    else if (site->in != one.in || site->out != one.out)
      complaints.push_back(fmt::format("{} adapts a weight [{}, {}] where the model has [{}, {}]", label, one.out,
                                       one.in, site->out, site->in));
  }
  std::vector<FittedSite> in_order;
  for (const Site& site : sites) {
    const size_t before = in_order.size();
    for (const AdaptedSite& one : adapted)
      if (is_at(site, one)) in_order.push_back({&site, &one});
    if (in_order.size() > before + 1)
      complaints.push_back(fmt::format("{} is there more than once", site_label(site.layer, site.name)));
  }
  if (!complaints.empty())
    fail(Error::Kind::kModel, "{}: does not fit this model: {}; use the base model it was trained on", source,
         listed(complaints));
  if (in_order.empty()) fail(Error::Kind::kModel, "{}: holds no adapted layer", source);
  return in_order;
}

std::string listed(std::span<const std::string> items) {
  constexpr size_t kShown = 4;
  std::string text;
  for (const std::string& item : items.first(std::min(items.size(), kShown))) text += (text.empty() ? "" : "; ") + item;
  if (items.size() > kShown) text += fmt::format("; and {} more", items.size() - kShown);
  return text;
}

}  // namespace patina
