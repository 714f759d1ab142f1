// The adaptable linear layers of a model, and how they are named and chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "tensor/tensor.h"

namespace patina {

// One adaptable linear layer of a model.
struct Site {
  int layer;         // -1 for lm_head
  std::string name;  // canonical: q, k, v, o, gate, up, down, lm_head
  int64_t in, out;   // W [out,in]
  Tensor weight{};   // W itself; only DoRA reads it
};

// How graphs, logs and messages name a site: "layers.3.q", "lm_head".
std::string site_label(int layer, std::string_view site);

// The sites of a model whose names are in `names`, in the model's order; with top_layers > 0 only those of the last
// `top_layers` layers (lm_head, which lies above all layers, stays). Error(kUsage) where the model has no site of a
// name or fewer layers.
std::vector<Site> select_sites(std::span<const Site> all, const std::set<std::string>& names, int top_layers);

// Numbers for some sites, by patterns: "layers.*.q=32,down=8". A pattern is a site's name, or a glob ("*" any text, "?"
// any character) for its whole label; the first that matches a site counts.
class SiteNumbers {
 public:
  SiteNumbers() = default;
  // Error(kUsage) naming `flag` where the text cannot be read, or holds a number that is not positive.
  SiteNumbers(std::string_view flag, std::string_view text);

  std::optional<double> at(const Site& site) const;
  // Error(kUsage) naming a pattern that matches none of the sites.
  void check_all_match(std::span<const Site> sites) const;
  bool empty() const { return patterns_.empty(); }

 private:
  struct Pattern {
    std::string glob;
    double number;
  };
  std::string flag_;
  std::vector<Pattern> patterns_;
};

// A site of the model, and what a file adds to it.
struct FittedSite {
  const Site* site;
  const AdaptedSite* adapted;
};
// What a file adapts, in the model's order. Error(kModel) naming `source` and listing what does not fit these sites,
// the model's: unknown, duplicate, of other widths.
std::vector<FittedSite> in_model_order(std::span<const Site> sites, std::span<const AdaptedSite> adapted,
                                       const std::string& source);

// "a; b; c; d; and 3 more": the first of what may be hundreds of complaints.
std::string listed(std::span<const std::string> items);

}  // namespace patina
