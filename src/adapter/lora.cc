#include "adapter/lora.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ops/frozen_linear.h"
#include "ops/matmul.h"

namespace patina {
namespace {

// The number of a site's name in the key of its random stream: 32-bit FNV-1a, so that it depends on the name alone.
// Fixed: the start of every run depends on it.
uint32_t stream_of(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

bool is_at(const Site& site, int layer, std::string_view name) { return site.layer == layer && site.name == name; }

// The first of what may be hundreds of complaints.
std::string listed(std::span<const std::string> items) {
  constexpr size_t kShown = 4;
  std::string text;
  for (const std::string& item : items.first(std::min(items.size(), kShown))) text += (text.empty() ? "" : "; ") + item;
  if (items.size() > kShown) text += fmt::format("; and {} more", items.size() - kShown);
  return text;
}

}  // namespace

LoraAdapter::LoraAdapter(std::span<const Site> sites, int64_t rank, float alpha, uint64_t seed) {
  constexpr int64_t kLargestRank = 1 << 16;
  if (sites.empty()) fail(Error::Kind::kUsage, "no layer is chosen to adapt");
  if (rank < 1 || rank > kLargestRank)
    fail(Error::Kind::kUsage, "LoRA rank {}: expected 1 to {}, usually 4 to 64", rank, kLargestRank);
  if (!(alpha > 0 && std::isfinite(alpha)))
    fail(Error::Kind::kUsage, "LoRA alpha {}: expected a positive number, usually the rank or twice the rank", alpha);
  for (const Site& site : sites) add_target(site, rank, alpha);
  store_.allocate();
  for (const Target& target : targets_) {
    const RandomStream stream(seed, RandomUse::kInitialise, stream_of(target.site.name),
                              static_cast<uint32_t>(target.site.layer + 1));
    const double deviation = 1.0 / std::sqrt(static_cast<double>(target.site.in));
    float* a = store_.value(target.a);
    for (int64_t i = 0; i < rank * target.site.in; ++i)
      a[i] = static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)));
  }
}

LoraAdapter::LoraAdapter(std::span<const Site> sites, std::span<const LoraPair> pairs, const std::string& source) {
  std::vector<std::string> complaints;
  std::vector<const LoraPair*> in_order;
  for (const LoraPair& pair : pairs) {
    const std::string label = site_label(pair.layer, pair.site);
    const auto site =
        std::find_if(sites.begin(), sites.end(), [&](const Site& s) { return is_at(s, pair.layer, pair.site); });
    if (site == sites.end())
      complaints.push_back(fmt::format("{} is not in the model", label));
    else if (site->in != pair.in || site->out != pair.out)
      complaints.push_back(fmt::format("{} adapts a weight [{}, {}] where the model has [{}, {}]", label, pair.out,
                                       pair.in, site->out, site->in));
  }
  for (const Site& site : sites) {
    const auto matches = [&](const LoraPair& p) { return is_at(site, p.layer, p.site); };
    const auto found = std::find_if(pairs.begin(), pairs.end(), matches);
    if (found == pairs.end()) continue;
    if (std::find_if(found + 1, pairs.end(), matches) != pairs.end())
      complaints.push_back(fmt::format("{} is there more than once", site_label(site.layer, site.name)));
    in_order.push_back(&*found);
    add_target(site, found->rank, found->alpha);
  }
  if (!complaints.empty())
    fail(Error::Kind::kModel, "{}: does not fit this model: {}; use the base model it was trained on", source,
         listed(complaints));
  if (in_order.empty()) fail(Error::Kind::kModel, "{}: holds no adapted layer", source);
  store_.allocate();
  for (size_t t = 0; t < targets_.size(); ++t) {
    const LoraPair& pair = *in_order[t];
    PATINA_CHECK(static_cast<int64_t>(pair.a.size()) == pair.rank * pair.in &&
                     static_cast<int64_t>(pair.b.size()) == pair.out * pair.rank,
                 "{}: {} and {} numbers", site_label(pair.layer, pair.site), pair.a.size(), pair.b.size());
    std::copy(pair.a.begin(), pair.a.end(), store_.value(targets_[t].a));
    std::copy(pair.b.begin(), pair.b.end(), store_.value(targets_[t].b));
  }
}

void LoraAdapter::add_target(const Site& site, int64_t rank, float alpha) {
  const std::string label = site_label(site.layer, site.name);
  const size_t a = store_.add(label + ".lora_a", {rank, site.in});
  const size_t b = store_.add(label + ".lora_b", {site.out, rank});
  targets_.push_back({site, rank, alpha, a, b});
}

const LoraAdapter::Target* LoraAdapter::find_target(int layer, std::string_view site) const {
  for (const Target& target : targets_)
    if (is_at(target.site, layer, site)) return &target;
  return nullptr;
}

// A graph knows its trainables by where they lie, so nothing about graphs is remembered here.
ValueId LoraAdapter::trainable(Graph& graph, size_t slice) {
  float* data = store_.value(slice);
  for (ValueId id = 0; id < graph.values(); ++id)
    if (graph.value(id).kind == ValueKind::kTrainable && graph.value(id).data == data) return id;
  const ParameterStore::Slice& where = store_.slices()[slice];
  return graph.trainable(where.name, where.shape, data);
}

ValueId LoraAdapter::linear(Graph& graph, ValueId x, ValueId weight, ValueId acc, int layer, std::string_view site,
                            bool few_rows) {
  const std::string label = site_label(layer, site);
  const ValueId frozen = frozen_linear(graph, x, weight, acc, label, few_rows);
  const Target* target = find_target(layer, site);
  if (target == nullptr) return frozen;
  const float scale = target->alpha / static_cast<float>(target->rank);
  const ValueId u = matmul(graph, x, trainable(graph, target->a), kNoValue, 1.0f, true, label + ".lora_a");
  return matmul(graph, u, trainable(graph, target->b), frozen, scale, true, label + ".lora_b");
}

std::map<ValueId, ValueId> LoraAdapter::gradients(Graph& graph) {
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

std::vector<LoraPair> LoraAdapter::pairs() const {
  std::vector<LoraPair> pairs;
  for (const Target& t : targets_) {
    const float *a = store_.value(t.a), *b = store_.value(t.b);
    pairs.push_back({t.site.layer, t.site.name, t.site.in, t.site.out, t.rank, t.alpha,
                     std::vector<float>(a, a + t.rank * t.site.in), std::vector<float>(b, b + t.site.out * t.rank)});
  }
  return pairs;
}

}  // namespace patina
