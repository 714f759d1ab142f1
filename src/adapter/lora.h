// LoRA (Hu et al., arXiv 2106.09685): y = W x + (alpha / R) B (A x), A [R,in], B [out,R]. Internal to the adapter room.
#pragma once

#include "adapter/branch.h"

namespace patina {

class LoraBranch : public Branch {
 public:
  LoraBranch(const Site& site, ParameterStore& store, int64_t rank, float alpha);

  // A normal with standard deviation 1/sqrt(in), B = 0. Every A has a random stream of its own, by layer and name:
  // which other sites are adapted changes nothing, and a higher rank only adds rows.
  void initialise(uint64_t seed) override;
  void load(const Factors& factors) override;
  ValueId linear(Graph& graph, const FrozenProduct& product) override;
  Factors factors() const override;

 protected:
  float scale() const { return alpha_ / static_cast<float>(rank_); }

  const int64_t rank_;
  const float alpha_;
  const size_t a_, b_;  // slices
};

}  // namespace patina
