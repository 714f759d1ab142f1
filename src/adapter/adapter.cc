#include "adapter/adapter.h"

#include <algorithm>
#include <cmath>

#include "adapter/branch.h"
#include "ops/frozen_linear.h"

namespace patina {
namespace {

bool is_at(const Site& site, int layer, std::string_view name) { return site.layer == layer && site.name == name; }

// The first of what may be hundreds of complaints.
std::string listed(std::span<const std::string> items) {
  constexpr size_t kShown = 4;
  std::string text;
  for (const std::string& item : items.first(std::min(items.size(), kShown))) text += (text.empty() ? "" : "; ") + item;
  if (items.size() > kShown) text += fmt::format("; and {} more", items.size() - kShown);
  return text;
}

std::unique_ptr<Branch> make_branch(const Site& site, ParameterStore& store, const Factors& factors) {
  const auto* const lora = std::get_if<LoraFactors>(&factors);
  PATINA_CHECK(lora != nullptr, "{}: no LoRA", site_label(site.layer, site.name));
  return make_lora(site, store, lora->rank, lora->alpha);
}

}  // namespace

Adapter::Adapter(std::span<const Site> sites, const AdapterOptions& options) {
  constexpr int64_t kLargestRank = 1 << 16;
  if (sites.empty()) fail(Error::Kind::kUsage, "no layer is chosen to adapt");
  if (options.rank < 1 || options.rank > kLargestRank)
    fail(Error::Kind::kUsage, "LoRA rank {}: expected 1 to {}, usually 4 to 64", options.rank, kLargestRank);
  if (!(options.alpha > 0 && std::isfinite(options.alpha)))
    fail(Error::Kind::kUsage, "LoRA alpha {}: expected a positive number, usually the rank or twice the rank",
         options.alpha);
  for (const Site& site : sites) branches_.push_back(make_lora(site, store_, options.rank, options.alpha));
  store_.allocate();
  for (const auto& branch : branches_) branch->initialise(options.seed);
}

Adapter::Adapter(std::span<const Site> sites, std::span<const AdaptedSite> adapted, const std::string& source) {
  std::vector<std::string> complaints;
  std::vector<const AdaptedSite*> in_order;
  for (const AdaptedSite& one : adapted) {
    const std::string label = site_label(one.layer, one.site);
    const auto site =
        std::find_if(sites.begin(), sites.end(), [&](const Site& s) { return is_at(s, one.layer, one.site); });
    if (site == sites.end())
      complaints.push_back(fmt::format("{} is not in the model", label));
    else if (site->in != one.in || site->out != one.out)
      complaints.push_back(fmt::format("{} adapts a weight [{}, {}] where the model has [{}, {}]", label, one.out,
                                       one.in, site->out, site->in));
  }
  for (const Site& site : sites) {
    const auto matches = [&](const AdaptedSite& one) { return is_at(site, one.layer, one.site); };
    const auto found = std::find_if(adapted.begin(), adapted.end(), matches);
    if (found == adapted.end()) continue;
    if (std::find_if(found + 1, adapted.end(), matches) != adapted.end())
      complaints.push_back(fmt::format("{} is there more than once", site_label(site.layer, site.name)));
    in_order.push_back(&*found);
    branches_.push_back(make_branch(site, store_, found->factors));
  }
  if (!complaints.empty())
    fail(Error::Kind::kModel, "{}: does not fit this model: {}; use the base model it was trained on", source,
         listed(complaints));
  if (branches_.empty()) fail(Error::Kind::kModel, "{}: holds no adapted layer", source);
  store_.allocate();
  for (size_t i = 0; i < branches_.size(); ++i) branches_[i]->load(in_order[i]->factors);
}

Adapter::~Adapter() = default;

Branch* Adapter::find(int layer, std::string_view site) const {
  for (const auto& branch : branches_)
    if (is_at(branch->site(), layer, site)) return branch.get();
  return nullptr;
}

ValueId Adapter::linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                        bool few_rows) {
  const std::string label = site_label(layer, site);
  Branch* const branch = find(layer, site);
  if (branch == nullptr) return frozen_linear(graph, x, weight, acc, label, few_rows);
  return branch->linear(graph, {x, weight, acc, label, few_rows});
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
               bool few_rows) {
  if (adapter != nullptr) return adapter->linear(graph, x, weight, acc, layer, site, few_rows);
  return frozen_linear(graph, x, weight, acc, site_label(layer, site), few_rows);
}

}  // namespace patina
