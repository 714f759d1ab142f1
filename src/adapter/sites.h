// The adaptable linear layers of a model, and how they are named and chosen.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace patina {

// One adaptable linear layer of a model.
struct Site {
  int layer;         // -1 for lm_head
  std::string name;  // canonical: q, k, v, o, gate, up, down, lm_head
  int64_t in, out;   // W [out,in]
};

// How graphs, logs and messages name a site: "layers.3.q", "lm_head".
std::string site_label(int layer, std::string_view site);

// The sites of a model whose names are in `names`, in the model's order; with top_layers > 0 only those of the last
// `top_layers` layers (lm_head, which lies above all layers, stays). Error(kUsage) where the model has no site of a
// name or fewer layers.
std::vector<Site> select_sites(std::span<const Site> all, const std::set<std::string>& names, int top_layers);

}  // namespace patina
