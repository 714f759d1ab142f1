// Adapters: how a trainable change is added to frozen linear layers. Models call linear() for every adaptable layer and
// know nothing else about adapters.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/parameters.h"
#include "ir/graph.h"

namespace patina {

// One adaptable linear layer of a model.
struct Site {
  int layer;         // -1 for lm_head
  std::string name;  // canonical: q, k, v, o, gate, up, down, lm_head
  int64_t in, out;   // W [out,in]
};

class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual std::string_view kind() const = 0;  // "lora"
  // y [T,out] = acc + adapted(W) x. Appends the frozen product and, where the site is adapted, the adapter's branch.
  // One adapter may build any number of graphs; they share its parameters.
  virtual ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                         bool few_rows) = 0;
  virtual bool adapts(int layer, std::string_view site) const = 0;
  // Trainable values that `graph` uses, and the states (added to it) that accumulate their gradients: for
  // differentiate(). Before this call the parameters have no gradients.
  virtual std::map<ValueId, ValueId> gradients(Graph& graph) = 0;
  virtual ParameterStore& parameters() = 0;
};

// The hook that models call: the adapter's linear(), or the frozen product alone where there is none.
ValueId linear(Graph& graph, Adapter* adapter, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
               bool few_rows);

// How graphs, logs and messages name a site: "layers.3.q", "lm_head".
std::string site_label(int layer, std::string_view site);

// The sites of a model whose names are in `names`, in the model's order; with top_layers > 0 only those of the last
// `top_layers` layers (lm_head, which lies above all layers, stays). Error(kUsage) where the model has no site of a
// name or fewer layers.
std::vector<Site> select_sites(std::span<const Site> all, const std::set<std::string>& names, int top_layers);

}  // namespace patina
