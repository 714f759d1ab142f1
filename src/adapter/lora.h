// LoRA (Hu et al., arXiv 2106.09685): y = W x + (alpha / R) B (A x), A [R,in], B [out,R].
#pragma once

#include <cstdint>
#include <span>

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
  // Fresh: A ~ N(0, 1/sqrt(in)), every matrix its own random stream (by its place in `sites`, layer and name), B = 0.
  LoraAdapter(std::span<const Site> sites, int64_t rank, float alpha, uint64_t seed);
  // From a file. `sites` are the model's: every pair must be one of them with the same widths. Error(kModel) naming `source` and
  // what differs; unknown and duplicate pairs are listed.
  LoraAdapter(std::span<const Site> sites, std::span<const LoraPair> pairs, const std::string& source);

  std::string_view kind() const override { return "lora"; }
  ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site, bool few_rows) override;
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
    ValueId a_value = kNoValue, b_value = kNoValue;  // in the last built graph
  };
  ParameterStore store_;
  std::vector<Target> targets_;
};

}  // namespace patina
