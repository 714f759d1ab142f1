#include "adapter/adapter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "adapter/branch.h"
#include "ops/frozen_linear.h"

namespace patina {
namespace {

// Rank and alpha of one site of a fresh adapter.
struct SiteOptions {
  int64_t rank;
  float alpha;
};

std::vector<SiteOptions> options_of(std::span<const Site> sites, const AdapterOptions& options) {
  constexpr double kLargestRank = 1 << 16;
  if (sites.empty()) fail(Error::Kind::kUsage, "no layer is chosen to adapt");
  if (options.factor != -1 && options.factor < 1)
    fail(Error::Kind::kUsage, "LoKr factor {}: expected -1 or at least 1, usually 4 to 16", options.factor);
  options.ranks.check_all_match(sites);
  options.alphas.check_all_match(sites);
  std::vector<SiteOptions> chosen;
  for (const Site& site : sites) {
    const double rank = options.ranks.at(site).value_or(static_cast<double>(options.rank));
    if (!(rank >= 1 && rank <= kLargestRank && rank == std::floor(rank)))
      fail(Error::Kind::kUsage, "rank {} of {}: expected a whole number from 1 to {}, usually 4 to 64", rank,
           site_label(site.layer, site.name), kLargestRank);
    double alpha = options.alphas.at(site).value_or(static_cast<double>(options.alpha));
    if (options.rslora) alpha *= std::sqrt(rank);
    if (!(alpha > 0 && alpha <= double{std::numeric_limits<float>::max()}))
      fail(Error::Kind::kUsage, "alpha {} of {}: expected a positive F32 number, usually the rank or twice the rank",
           alpha, site_label(site.layer, site.name));
    chosen.push_back({static_cast<int64_t>(rank), static_cast<float>(alpha)});
  }
  return chosen;
}

LokrShape lokr_shape(const Site& site, const AdapterOptions& options, const SiteOptions& chosen) {
  return patina::lokr_shape(site.out, site.in, chosen.rank, chosen.alpha, options.factor, options.decompose_both);
}

std::unique_ptr<Branch> make_branch(const Site& site, ParameterStore& store, const AdapterOptions& options,
                                    const SiteOptions& chosen) {
  switch (options.kind) {
    case AdapterKind::kLora:
      return make_lora(site, store, chosen.rank, chosen.alpha);
    case AdapterKind::kDora:
      return make_dora(site, store, chosen.rank, chosen.alpha);
    case AdapterKind::kLokr:
      return make_lokr(site, store, lokr_shape(site, options, chosen));
  }
  PATINA_CHECK(false, "kind {}", static_cast<int>(options.kind));
}

std::unique_ptr<Branch> make_branch(const Site& site, ParameterStore& store, const Factors& factors) {
  if (const auto* const lokr = std::get_if<LokrFactors>(&factors))
    return make_lokr(site, store, patina::lokr_shape(*lokr));
  const auto& lora = std::get<LoraFactors>(factors);
  return lora.magnitude.empty() ? make_lora(site, store, lora.rank, lora.alpha)
                                : make_dora(site, store, lora.rank, lora.alpha);
}

}  // namespace

Adapter::Adapter(std::span<const Site> sites, const AdapterOptions& options) {
  const std::vector<SiteOptions> chosen = options_of(sites, options);
  for (size_t i = 0; i < sites.size(); ++i) branches_.push_back(make_branch(sites[i], store_, options, chosen[i]));
  allocate();
  for (const auto& branch : branches_) branch->initialise(options.seed);
  set_dropout(options.dropout, options.seed);
}

Adapter::Adapter(std::span<const Site> sites, std::span<const AdaptedSite> adapted, const std::string& source) {
  const std::vector<FittedSite> in_order = in_model_order(sites, adapted, source);
  for (const FittedSite& one : in_order) branches_.push_back(make_branch(*one.site, store_, one.adapted->factors));
  allocate();
  for (size_t i = 0; i < branches_.size(); ++i) branches_[i]->load(in_order[i].adapted->factors);
}

Adapter::~Adapter() = default;

void Adapter::set_dropout(double probability, uint64_t seed) {
  if (!(probability >= 0 && probability < 0.999))
    fail(Error::Kind::kUsage, "dropout {}: expected 0 to less than 0.999, usually 0.05", probability);
  has_dropout_ = probability > 0;
  for (const auto& branch : branches_) branch->set_dropout(probability, seed);
}

void Adapter::allocate() {
  store_.allocate();
  for (const auto& branch : branches_) branch->add_prelude(prelude_);
}

int64_t Adapter::constant_bytes() const {
  int64_t bytes = 0;
  for (const auto& branch : branches_) bytes += branch->constant_bytes();
  return bytes;
}

Branch* Adapter::find(int layer, std::string_view site) const {
  for (const auto& branch : branches_)
    if (branch->site().layer == layer && branch->site().name == site) return branch.get();
  return nullptr;
}

ValueId Adapter::linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                        const LinearUse& use) {
  const std::string label = site_label(layer, site);
  Branch* const branch = find(layer, site);
  if (branch == nullptr) return frozen_linear(graph, x, weight, acc, label, use.few_rows);
  return branch->linear(graph, {x, weight, acc, label, use.few_rows, use.places});
}

std::map<ValueId, ValueId> Adapter::gradients(Graph& graph) {
  store_.allocate_gradients();
  std::map<const void*, size_t> slice_at;
  for (size_t s = 0; s < store_.slices().size(); ++s) slice_at[store_.value(s)] = s;
  std::map<ValueId, ValueId> states;
  for (ValueId id = 0, end = graph.values(); id < end; ++id) {
    const auto found = slice_at.find(graph.value(id).data);
    if (graph.value(id).kind != ValueKind::kTrainable || found == slice_at.end()) continue;
    const ParameterStore::Slice& slice = store_.slices()[found->second];
    states[id] =
        graph.state(slice.name + ".gradient", DType::kF32, graph.value(id).extents, store_.gradient(found->second));
  }
  return states;
}

std::vector<AdaptedSite> Adapter::sites() const {
  std::vector<AdaptedSite> sites;
  for (const auto& branch : branches_) {
    const Site& site = branch->site();
    sites.push_back({site.layer, site.name, site.in, site.out, branch->factors()});
  }
  return sites;
}

ValueId linear(Graph& graph, Adapter* adapter, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
               const LinearUse& use) {
  if (adapter != nullptr) return adapter->linear(graph, x, weight, acc, layer, site, use);
  return frozen_linear(graph, x, weight, acc, site_label(layer, site), use.few_rows);
}

int64_t count_parameters(std::span<const Site> sites, const AdapterOptions& options) {
  const std::vector<SiteOptions> chosen = options_of(sites, options);
  int64_t count = 0;
  for (size_t i = 0; i < sites.size(); ++i) {
    const Site& site = sites[i];
    if (options.kind == AdapterKind::kLokr)
      count += lokr_shape(site, options, chosen[i]).parameters();
    else
      count += chosen[i].rank * (site.in + site.out) + (options.kind == AdapterKind::kDora ? site.out : 0);
  }
  return count;
}

}  // namespace patina
