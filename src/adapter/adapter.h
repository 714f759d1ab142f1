// Adapters: how a trainable change is added to frozen linear layers. Models call linear() for every adaptable layer and
// know nothing else about adapters.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapted_site.h"
#include "adapter/parameters.h"
#include "adapter/sites.h"
#include "ir/graph.h"
#include "ops/dropout.h"

namespace patina {

class Branch;

enum class AdapterKind : uint8_t { kLora, kDora, kLokr };

// What a fresh adapter is.
struct AdapterOptions {
  AdapterKind kind = AdapterKind::kLora;
  int64_t rank = 16;  // LoKr: its dim
  float alpha = 32.0f;
  SiteNumbers ranks{}, alphas{};  // of sites that differ
  bool rslora = false;  // scale by alpha / sqrt(rank): kept as alpha * sqrt(rank) (Kalajdzievski, arXiv 2312.03732)
  int64_t factor = 8;   // LoKr, and below
  bool decompose_both = false;
  double dropout = 0.0;  // of the branch's input, in training
  uint64_t seed = 42;
};

// The parameters that such an adapter has, by the shapes of the sites alone. Error(kUsage) as the adapter itself.
int64_t count_parameters(std::span<const Site> sites, const AdapterOptions& options);

// How one linear layer is used in a graph.
struct LinearUse {
  bool few_rows = false;                 // ops/frozen_linear.h
  std::optional<RowPlaces> places = {};  // training: where its rows lie, for dropout
};

class Adapter {
 public:
  // Fresh: changes nothing yet. Error(kUsage) where there is no site, an option is out of range or a pattern matches
  // nothing.
  Adapter(std::span<const Site> sites, const AdapterOptions& options);
  // From numbers, such as a file's. `sites` are the model's: every adapted one must be among them with the same widths;
  // sites that are not adapted stay as they are. Error(kModel) naming `source` and listing what does not fit: unknown,
  // duplicate, of other widths.
  Adapter(std::span<const Site> sites, std::span<const AdaptedSite> adapted, const std::string& source);
  ~Adapter();
  // In training, numbers of each branch's input are left out with this probability. Before any graph is built.
  void set_dropout(double probability, uint64_t seed);
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // y [T,out] = acc + adapted(W) x. Appends the frozen product and, where the site is adapted, the adapter's branch.
  // One adapter may build any number of graphs; they share its parameters.
  ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                 const LinearUse& use);
  bool adapts(int layer, std::string_view site) const { return find(layer, site) != nullptr; }
  // Trainable values that `graph` uses, and the states (added to it) that accumulate their gradients: for
  // differentiate(). Before this call the parameters have no gradients.
  std::map<ValueId, ValueId> gradients(Graph& graph);
  ParameterStore& parameters() { return store_; }
  // What must run after every change of the parameters and before graphs that use them (adapter/prelude.h): computes
  // states of the adapter. Often without nodes.
  const Graph& prelude() const { return prelude_; }
  int64_t constant_bytes() const;  // held beside the parameters
  bool has_dropout() const { return has_dropout_; }
  // Copies for export, in the model's order of sites.
  std::vector<AdaptedSite> sites() const;

 private:
  Branch* find(int layer, std::string_view site) const;

  // When all branches are there: memory, and the prelude.
  void allocate();

  ParameterStore store_;
  std::vector<std::unique_ptr<Branch>> branches_;
  Graph prelude_;
  bool has_dropout_ = false;
};

// The hook that models call: the adapter's linear(), or the frozen product alone where there is none.
ValueId linear(Graph& graph, Adapter* adapter, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
               const LinearUse& use);

}  // namespace patina
