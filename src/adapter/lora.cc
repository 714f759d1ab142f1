#include "adapter/lora.h"

#include <cmath>

#include "base/philox.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"

namespace patina {

LoraBranch::LoraBranch(const Site& site, ParameterStore& store, int64_t rank, float alpha)
    : Branch(site, store),
      rank_(rank),
      alpha_(alpha),
      a_(add_slice("lora_a", {rank, site.in})),
      b_(add_slice("lora_b", {site.out, rank})) {}

void LoraBranch::initialise(uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kInitialise, stream_of(site_.name),
                            static_cast<uint32_t>(site_.layer + 1));
  const double deviation = 1.0 / std::sqrt(static_cast<double>(site_.in));
  float* const a = store_.value(a_);
  for (int64_t i = 0; i < rank_ * site_.in; ++i)
    a[i] = static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)));
}

void LoraBranch::load(const Factors& factors) {
  const auto& lora = std::get<LoraFactors>(factors);
  load_slice(a_, lora.a);
  load_slice(b_, lora.b);
}

ValueId LoraBranch::linear(Graph& graph, const FrozenProduct& product) {
  const ValueId frozen = frozen_linear(graph, product.x, product.weight, product.acc, product.label, product.few_rows);
  const ValueId u =
      matmul(graph, input(graph, product), trainable(graph, a_), kNoValue, 1.0f, true, product.label + ".lora_a");
  return matmul(graph, u, trainable(graph, b_), frozen, scale(), true, product.label + ".lora_b");
}

Factors LoraBranch::factors() const { return LoraFactors{rank_, alpha_, copy(a_), copy(b_), {}}; }

std::unique_ptr<Branch> make_lora(const Site& site, ParameterStore& store, int64_t rank, float alpha) {
  return std::make_unique<LoraBranch>(site, store, rank, alpha);
}

}  // namespace patina
