// LoRA (Hu et al., arXiv 2106.09685): y = W x + (alpha / R) B (A x), A [R,in], B [out,R].
#include <cmath>

#include "adapter/branch.h"
#include "base/philox.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"

namespace patina {
namespace {

class LoraBranch final : public Branch {
 public:
  LoraBranch(const Site& site, ParameterStore& store, int64_t rank, float alpha)
      : Branch(site, store),
        rank_(rank),
        alpha_(alpha),
        a_(add_slice("lora_a", {rank, site.in})),
        b_(add_slice("lora_b", {site.out, rank})) {}

  // Every A has a random stream of its own, by layer and name: which other sites are adapted changes nothing, and a
  // higher rank only adds rows.
  void initialise(uint64_t seed) override {
    const RandomStream stream(seed, RandomUse::kInitialise, stream_of(site_.name),
                              static_cast<uint32_t>(site_.layer + 1));
    const double deviation = 1.0 / std::sqrt(static_cast<double>(site_.in));
    float* const a = store_.value(a_);
    for (int64_t i = 0; i < rank_ * site_.in; ++i)
      a[i] = static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)));
  }

  void load(const Factors& factors) override {
    const auto& lora = std::get<LoraFactors>(factors);
    load_slice(a_, lora.a);
    load_slice(b_, lora.b);
  }

  ValueId linear(Graph& graph, const FrozenProduct& product) override {
    const ValueId frozen =
        frozen_linear(graph, product.x, product.weight, product.acc, product.label, product.few_rows);
    const float scale = alpha_ / static_cast<float>(rank_);
    const ValueId u = matmul(graph, product.x, trainable(graph, a_), kNoValue, 1.0f, true, product.label + ".lora_a");
    return matmul(graph, u, trainable(graph, b_), frozen, scale, true, product.label + ".lora_b");
  }

  Factors factors() const override { return LoraFactors{rank_, alpha_, copy(a_), copy(b_), {}}; }

 private:
  const int64_t rank_;
  const float alpha_;
  const size_t a_, b_;  // slices
};

}  // namespace

std::unique_ptr<Branch> make_lora(const Site& site, ParameterStore& store, int64_t rank, float alpha) {
  return std::make_unique<LoraBranch>(site, store, rank, alpha);
}

}  // namespace patina
