#include "cli/adapter_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "adapter/lokr.h"

namespace patina {

namespace {

std::string factor_text(const KroneckerFactor& factor) {
  return fmt::format("[{}, {}] {}", factor.rows, factor.columns, factor.is_whole() ? "whole" : "low-rank");
}

int64_t numbers_of(const KroneckerFactor& factor) {
  return std::ssize(factor.whole) + std::ssize(factor.a) + std::ssize(factor.b);
}

bool same_shape(const LokrFactorShape& a, const LokrFactorShape& b) {
  return a.rows == b.rows && a.columns == b.columns && a.rank == b.rank;
}

void find_lokr_options(std::span<const AdaptedSite> sites, AdapterFacts& facts) {
  std::set<int64_t> candidates = {-1};
  for (const AdaptedSite& site : sites)
    if (const auto* lokr = std::get_if<LokrFactors>(&site.factors)) {
      candidates.insert({lokr->w1.rows, lokr->w1.columns});
      facts.lokr_decompose_both = facts.lokr_decompose_both || !lokr->w1.is_whole();
    }
  const auto gives = [&](int64_t factor, const AdaptedSite& site) {
    const auto* lokr = std::get_if<LokrFactors>(&site.factors);
    if (lokr == nullptr) return true;  // LoRA
    const LokrShape found = lokr_shape(*lokr);
    const LokrShape shape = lokr_shape(site.out, site.in, lokr->dim, lokr->alpha, factor, facts.lokr_decompose_both);
    return same_shape(shape.w1, found.w1) && same_shape(shape.w2, found.w2);
  };
  for (const int64_t factor : candidates)
    if (std::ranges::all_of(sites, [&](const AdaptedSite& site) { return gives(factor, site); })) {
      facts.lokr_factor = factor;
      if (factor > 0) return;
    }
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
  if (!facts.lokr.empty()) find_lokr_options(sites, facts);
  return facts;
}

}  // namespace patina
