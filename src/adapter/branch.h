// What an adapter adds to one site, behind one interface: its parameters, their first values, its nodes, its numbers.
// Internal to the adapter room; a kind of adapter is a file that implements it.
#pragma once

#include <memory>

#include "adapter/adapted_site.h"
#include "adapter/parameters.h"
#include "adapter/sites.h"
#include "ir/graph.h"

namespace patina {

// The frozen product that a branch changes: y [T,out] = acc + W x.
struct FrozenProduct {
  ValueId x, weight, acc;
  std::string label;
  bool few_rows;
};

class Branch {
 public:
  Branch(const Site& site, ParameterStore& store) : site_(site), store_(store) {}
  virtual ~Branch() = default;

  const Site& site() const { return site_; }
  std::string label() const { return site_label(site_.layer, site_.name); }
  // The parameters' first values, in a store of zeros: of a fresh adapter, or of another of the same kind and shapes.
  virtual void initialise(uint64_t seed) = 0;
  virtual void load(const Factors& factors) = 0;
  // Appends the adapted product.
  virtual ValueId linear(Graph& graph, const FrozenProduct& product) = 0;
  // Copies for export.
  virtual Factors factors() const = 0;

 protected:
  size_t add_slice(std::string_view name, const Shape& shape);
  // The slice as a value of this graph: the same one wherever it is used in it.
  ValueId trainable(Graph& graph, size_t slice);
  std::vector<float> copy(size_t slice) const;
  void load_slice(size_t slice, std::span<const float> values);  // InternalError where there are too many or too few

  const Site site_;
  ParameterStore& store_;
};

std::unique_ptr<Branch> make_lora(const Site& site, ParameterStore& store, int64_t rank, float alpha);

// The number of a name in the key of its random stream: 32-bit FNV-1a, so that it depends on the name alone. Fixed: the
// start of every run depends on it.
uint32_t stream_of(std::string_view name);

}  // namespace patina
