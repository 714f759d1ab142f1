// LoRA (Hu et al., arXiv 2106.09685): y = W x + (alpha / R) B (A x), A [R,in], B [out,R].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapter.h"

namespace patina {

// One adapted site in numbers, in Hugging Face row order: what files hold.
struct LoraPair {
  int layer;
  std::string site;
  int64_t in, out, rank;
  float alpha;
  std::vector<float> a;  // [rank, in]
  std::vector<float> b;  // [out, rank]
  float scale() const { return alpha / static_cast<float>(rank); }
};

class LoraAdapter final : public Adapter {
 public:
  // Fresh: A normal with standard deviation 1/sqrt(in), B = 0. Every A has a random stream of its own, by layer and
  // name: which other sites are adapted changes nothing, and a higher rank only adds rows. Error(kUsage) where there is
  // no site, or rank < 1 or alpha out of range.
  LoraAdapter(std::span<const Site> sites, int64_t rank, float alpha, uint64_t seed);
  // From a file. `sites` are the model's: every pair must be one of them with the same widths; sites without a pair are
  // not adapted. Error(kModel) naming `source` and listing what does not fit: unknown, duplicate, of other widths.
  LoraAdapter(std::span<const Site> sites, std::span<const LoraPair> pairs, const std::string& source);

  std::string_view kind() const override { return "lora"; }
  ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                 bool few_rows) override;
  bool adapts(int layer, std::string_view site) const override { return find_target(layer, site) != nullptr; }
  std::map<ValueId, ValueId> gradients(Graph& graph) override;
  ParameterStore& parameters() override { return store_; }

  // Copies for export, in the order of layers and sites.
  std::vector<LoraPair> pairs() const;

 private:
  struct Target {
    Site site;
    int64_t rank;
    float alpha;
    size_t a, b;  // slices
  };
  void add_target(const Site& site, int64_t rank, float alpha);
  const Target* find_target(int layer, std::string_view site) const;
  ValueId trainable(Graph& graph, size_t slice);

  ParameterStore store_;
  std::vector<Target> targets_;
};

}  // namespace patina
