// What an adapter adds to one site, behind one interface: its parameters, their first values, its nodes, its numbers.
// Internal to the adapter room; a kind of adapter is a file that implements it.
#pragma once

#include <memory>
#include <optional>

#include "adapter/adapted_site.h"
#include "adapter/lokr.h"
#include "adapter/parameters.h"
#include "adapter/sites.h"
#include "ir/graph.h"
#include "ops/dropout.h"

namespace patina {

// The frozen product that a branch changes: y [T,out] = acc + W x.
struct FrozenProduct {
  ValueId x, weight, acc;
  std::string label;
  bool few_rows;
  std::optional<RowPlaces> places;  // where training draws dropout; absent: none
};

class Branch {
 public:
  Branch(const Site& site, ParameterStore& store) : site_(site), store_(store) {}
  virtual ~Branch() = default;

  const Site& site() const { return site_; }
  std::string label() const { return site_label(site_.layer, site_.name); }
  // Numbers of the input that training leaves out of the branch, and the seed of their choice.
  void set_dropout(double probability, uint64_t seed);

  // The parameters' first values, in a store of zeros: of a fresh adapter, or of another of the same kind and shapes.
  virtual void initialise(uint64_t seed) = 0;
  virtual void load(const Factors& factors) = 0;
  // Appends the adapted product.
  virtual ValueId linear(Graph& graph, const FrozenProduct& product) = 0;
  // Appends what is computed from the parameters once, before graphs that use them run.
  virtual void add_prelude(Graph&) {}
  // Bytes held beside the parameters.
  virtual int64_t constant_bytes() const { return 0; }
  // Copies for export.
  virtual Factors factors() const = 0;

 protected:
  size_t add_slice(std::string_view name, const Shape& shape);
  // The slice as a value of this graph: the same one wherever it is used in it.
  ValueId trainable(Graph& graph, size_t slice);
  std::vector<float> copy(size_t slice) const;
  void load_slice(size_t slice, std::span<const float> values);  // InternalError where there are too many or too few
  // The input of the branch: x, in training after dropout.
  ValueId input(Graph& graph, const FrozenProduct& product) const;

  const Site site_;
  ParameterStore& store_;

 private:
  double dropout_ = 0.0;
  uint64_t dropout_seed_ = 0;
};

std::unique_ptr<Branch> make_lora(const Site& site, ParameterStore& store, int64_t rank, float alpha);
// The site has its weight.
std::unique_ptr<Branch> make_dora(const Site& site, ParameterStore& store, int64_t rank, float alpha);
std::unique_ptr<Branch> make_lokr(const Site& site, ParameterStore& store, const LokrShape& shape);

// The number of a name in the key of its random stream: 32-bit FNV-1a, so that it depends on the name alone. Fixed: the
// start of every run depends on it.
uint32_t stream_of(std::string_view name);

}  // namespace patina
