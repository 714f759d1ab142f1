#include "cli/adapter_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace patina {

namespace {

std::string factor_text(const KroneckerFactor& factor) {
  return fmt::format("[{}, {}] {}", factor.rows, factor.columns, factor.is_whole() ? "whole" : "low-rank");
}

int64_t numbers_of(const KroneckerFactor& factor) {
  return std::ssize(factor.whole) + std::ssize(factor.a) + std::ssize(factor.b);
}

}  // namespace

AdapterFacts adapter_facts(std::span<const AdaptedSite> sites) {
  AdapterFacts facts;
  for (const AdaptedSite& site : sites) {
    if (const auto* lora = std::get_if<LoraFactors>(&site.factors)) {
      facts.kinds.insert(lora->magnitude.empty() ? "lora" : "dora");
      facts.ranks.insert(lora->rank);
      facts.alphas.insert(lora->alpha);
      facts.parameters += std::ssize(lora->a) + std::ssize(lora->b) + std::ssize(lora->magnitude);
    } else {
      const auto& lokr = std::get<LokrFactors>(site.factors);
      facts.kinds.insert("lokr");
      facts.ranks.insert(lokr.dim);
      facts.alphas.insert(lokr.alpha);
      facts.lokr.insert(fmt::format("w1 {}, w2 {}", factor_text(lokr.w1), factor_text(lokr.w2)));
      facts.parameters += numbers_of(lokr.w1) + numbers_of(lokr.w2);
    }
    if (site.layer >= 0) facts.layers.insert(site.layer);
    if (std::ranges::find(facts.sites, site.site) == facts.sites.end()) facts.sites.push_back(site.site);
  }
  return facts;
}

}  // namespace patina
