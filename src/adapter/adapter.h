// Adapters: how a trainable change is added to frozen linear layers. Models call linear() for every adaptable layer and
// know nothing else about adapters.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "adapter/parameters.h"
#include "adapter/sites.h"
#include "ir/graph.h"

namespace patina {

class Branch;

// What a fresh adapter is.
struct AdapterOptions {
  int64_t rank = 16;
  float alpha = 32.0f;
  uint64_t seed = 42;
};

class Adapter {
 public:
  // Fresh: changes nothing yet. Error(kUsage) where there is no site, or an option is out of range.
  Adapter(std::span<const Site> sites, const AdapterOptions& options);
  // From numbers, such as a file's. `sites` are the model's: every adapted one must be among them with the same widths;
  // sites that are not adapted stay as they are. Error(kModel) naming `source` and listing what does not fit: unknown,
  // duplicate, of other widths.
  Adapter(std::span<const Site> sites, std::span<const AdaptedSite> adapted, const std::string& source);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // y [T,out] = acc + adapted(W) x. Appends the frozen product and, where the site is adapted, the adapter's branch.
  // One adapter may build any number of graphs; they share its parameters.
  ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site, bool few_rows);
  bool adapts(int layer, std::string_view site) const { return find(layer, site) != nullptr; }
  // Trainable values that `graph` uses, and the states (added to it) that accumulate their gradients: for
  // differentiate(). Before this call the parameters have no gradients.
  std::map<ValueId, ValueId> gradients(Graph& graph);
  ParameterStore& parameters() { return store_; }
  // Copies for export, in the model's order of sites.
  std::vector<AdaptedSite> sites() const;

 private:
  Branch* find(int layer, std::string_view site) const;

  ParameterStore store_;
  std::vector<std::unique_ptr<Branch>> branches_;
};

// The hook that models call: the adapter's linear(), or the frozen product alone where there is none.
ValueId linear(Graph& graph, Adapter* adapter, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
               bool few_rows);

}  // namespace patina
