// llama.cpp's GGUF LoRA file. Facts of the format: llama.cpp's loader of adapters; see docs/adapters.md.
#include <cmath>

#include "adapter/factors.h"
#include "adapter/sites.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace patina {
namespace {

constexpr std::string_view kSuffix[] = {".lora_a", ".lora_b"};
constexpr const char* kType = "general.type";
constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kBaseName = "general.base_model.0.name";
constexpr const char* kAdapterType = "adapter.type";
constexpr const char* kAlpha = "adapter.lora.alpha";

bool is_power_of_two(float value) {
  int exponent;
  return std::frexp(value, &exponent) == 0.5f;
}

// The alpha for the whole file: the one that the most sites can be brought to without rounding.
float common_alpha(std::span<const AdaptedSite> sites) {
  std::map<float, int> counts;
  for (const AdaptedSite& site : sites)
    if (const float alpha = lora_of(site).alpha; alpha != 0) ++counts[alpha];
  float best = 1;
  int most = 0;
  for (const auto& [alpha, unused] : counts) {
    int exact = 0;
    for (const auto& [other, count] : counts)
      if (is_power_of_two(std::abs(other / alpha))) exact += count;
    if (exact > most) std::tie(best, most) = std::pair(alpha, exact);
  }
  return best;
}

std::span<const int32_t> row_map_of(const AdapterBase& base, const AdaptedSite& site) {
  return base.row_map ? base.row_map(site.layer, site.site) : std::span<const int32_t>();
}

}  // namespace

void write_gguf_lora(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base) {
  PATINA_CHECK(!adapter.sites.empty(), "nothing to write");
  const float alpha = common_alpha(adapter.sites);
  GgufWriter writer;
  writer.set(kType, "adapter");
  writer.set(kArchitecture, base.architecture);
  writer.set("general.base_model.count", uint32_t{1});
  writer.set(kBaseName, base.name);
  writer.set(kAdapterType, "lora");
  writer.set(kAlpha, alpha);
  for (const auto& [key, value] : adapter.metadata) {
    PATINA_CHECK(key.starts_with(kOwnMetadata), "metadata key {}", key);
    writer.set(key, value);
  }
  for (const AdaptedSite& site : adapter.sites) {
    const LoraFactors& lora = lora_of(site);
    const SitePlace place = place_of(site);
    const std::string weight = gguf_tensor_name(place.site, place.layer);
    const std::span<const int32_t> map = row_map_of(base, site);
    PATINA_CHECK(map.empty() || static_cast<int64_t>(map.size()) == site.out, "{}: row map of {} for {} rows", weight,
                 map.size(), site.out);
    const float fold = lora.alpha / alpha;  // the loader divides alpha by each site's own rank
    std::vector<float> b(lora.b.size());
    for (int64_t row = 0; row < site.out; ++row) {
      const int64_t stored = map.empty() ? row : map[static_cast<size_t>(row)];
      for (int64_t r = 0; r < lora.rank; ++r)
        b.at(static_cast<size_t>(stored * lora.rank + r)) = fold * lora.b[static_cast<size_t>(row * lora.rank + r)];
    }
    const auto tensor = [&](int factor) { return fmt::format("{}{}", weight, kSuffix[factor]); };
    writer.add_tensor(tensor(FactorCollector::kA), DType::kF32, {lora.rank, site.in}, std::as_bytes(std::span(lora.a)));
    writer.add_tensor(tensor(FactorCollector::kB), DType::kF32, {site.out, lora.rank}, std::as_bytes(std::span(b)));
  }
  writer.write(path);
}

AdapterFile read_gguf_lora(const std::filesystem::path& path, const AdapterBase& base) {
  const GgufFile file = GgufFile::open(path);
  const auto expect = [&](const char* key, std::string_view expected, std::string_view way_out) {
    if (const std::string found = file.string_or(key, ""); found != expected)
      fail(Error::Kind::kModel, "{}: {} is {}, expected \"{}\"; {}", path.string(), key, printable(found), expected,
           way_out);
  };
  expect(kType, "adapter", "this is no adapter file: give a GGUF LoRA or a PEFT directory");
  expect(kAdapterType, "lora", "only LoRA adapters have a GGUF form that can be read");
  expect(kArchitecture, base.architecture, "use the base model the adapter was trained on");
  const double alpha = file.require_float(kAlpha);
  if (!std::isfinite(static_cast<float>(alpha)))
    fail(Error::Kind::kModel, "{}: {} is {}, expected a finite number; export the adapter again", path.string(), kAlpha,
         alpha);

  FactorCollector collector(path);
  for (const GgufTensor& tensor : file.tensors()) {
    std::string_view weight = tensor.name;
    int factor = FactorCollector::kA;
    if (weight.ends_with(kSuffix[FactorCollector::kB])) factor = FactorCollector::kB;
    std::optional<SitePlace> place;
    if (weight.ends_with(kSuffix[factor])) {
      weight.remove_suffix(kSuffix[factor].size());
      place = parse_gguf_tensor_name(weight);
    }
    if (!place)
      fail(Error::Kind::kModel,
           "{}: tensor {} is not a LoRA factor of a known layer, expected names such as {}{}; train "
           "linear layers of the decoder only",
           path.string(), printable(tensor.name), gguf_tensor_name(SiteName::kQ, 0), kSuffix[0]);
    collector.add(*place, static_cast<FactorCollector::Factor>(factor), tensor.name, tensor.dtype, tensor.shape,
                  tensor.data);
  }
  AdapterFile adapter;
  adapter.sites = collector.sites();
  for (AdaptedSite& site : adapter.sites) {
    auto& lora = std::get<LoraFactors>(site.factors);
    // llama.cpp takes alpha 0 for "no scaling".
    lora.alpha = alpha == 0 ? static_cast<float>(lora.rank) : static_cast<float>(alpha);
    const std::span<const int32_t> map = row_map_of(base, site);
    if (map.empty()) continue;
    if (static_cast<int64_t>(map.size()) != site.out)
      fail(Error::Kind::kModel,
           "{}: the factor B of {} has {} rows, expected {}; use the base model the adapter was trained "
           "on",
           path.string(), site_label(site.layer, site.site), site.out, map.size());
    std::vector<float> b(lora.b.size());
    for (int64_t row = 0; row < site.out; ++row)
      for (int64_t r = 0; r < lora.rank; ++r)
        b[static_cast<size_t>(row * lora.rank + r)] =
            lora.b.at(static_cast<size_t>(map[static_cast<size_t>(row)] * lora.rank + r));
    lora.b = std::move(b);
  }
  adapter.base_model = file.string_or(kBaseName, "");
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(kOwnMetadata)) adapter.metadata[key] = file.require_string(key);
  return adapter;
}

}  // namespace patina
