// llama.cpp's GGUF LoRA file. Facts of the format: llama.cpp's loader of adapters; see docs/adapters.md.
#include <cmath>

#include "adapter/fold.h"
#include "adapter/formats.h"
#include "adapter/sites.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace patina {
namespace {

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
float common_alpha(const std::map<std::string, LoraFactors>& factors) {
  std::map<float, int> counts;
  for (const auto& [name, lora] : factors)
    if (lora.alpha != 0) ++counts[lora.alpha];
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

// Row r of the result is row order(r) of the matrix [rows, columns].
template <typename Order>
std::vector<float> reordered(const std::vector<float>& matrix, int64_t columns, Order order) {
  std::vector<float> result(matrix.size());
  for (int64_t row = 0; row < std::ssize(matrix) / columns; ++row)
    std::copy_n(matrix.begin() + order(row) * columns, columns, result.begin() + row * columns);
  return result;
}

}  // namespace

std::string gguf_obstacle(std::span<const AdaptedSite> sites) {
  if (family_of(place_of(sites[0]).site) == ModelFamily::kDit)
    return "no program reads GGUF adapters of this diffusion transformer; export it as peft or lycoris";
  for (const AdaptedSite& site : sites) {
    const std::string label = site_label(site.layer, site.site);
    if (const auto* lora = std::get_if<LoraFactors>(&site.factors)) {
      if (!lora->magnitude.empty())
        return fmt::format("GGUF has no form for DoRA ({}); {}, or export it as peft or lycoris", label, kMergeInstead);
    } else if (std::get<LokrFactors>(site.factors).w2.is_whole()) {
      return fmt::format(
          "GGUF has no form for LoKr, and only one with a low-rank second factor is a LoRA too: that of {} is whole; "
          "{}, "
          "or export it as peft or lycoris",
          label, kMergeInstead);
    }
  }
  return "";
}

void write_gguf_lora(const std::filesystem::path& path, const AdapterFile& adapter, const AdapterBase& base,
                     DType dtype) {
  std::map<std::string, LoraFactors> factors;  // by the name of the weight
  for (const AdaptedSite& site : adapter.sites) {
    const auto* lora = std::get_if<LoraFactors>(&site.factors);
    const std::string weight = gguf_tensor_name(place_of(site).site, site.layer);
    factors[weight] = lora != nullptr ? *lora : lora_from_lokr(std::get<LokrFactors>(site.factors));
  }
  const float alpha = common_alpha(factors);
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
    const std::string weight = gguf_tensor_name(place_of(site).site, site.layer);
    const std::span<const int32_t> map = row_map_of(base, site);
    PATINA_CHECK(map.empty() || std::ssize(map) == site.out, "{}: row map of {} for {} rows", weight, map.size(),
                 site.out);
    LoraFactors& lora = factors.at(weight);
    if (!map.empty()) {
      std::vector<int64_t> row_at(map.size());  // by stored row
      for (size_t row = 0; row < map.size(); ++row)
        row_at.at(static_cast<size_t>(map[row])) = static_cast<int64_t>(row);
      lora.b = reordered(lora.b, lora.rank, [&](int64_t stored) { return row_at[static_cast<size_t>(stored)]; });
    }
    const float fold = lora.alpha / alpha;  // the loader divides alpha by each site's own rank
    for (float& value : lora.b) value *= fold;
    const auto add = [&](Part part, const Shape& shape, std::span<const float> values) {
      const std::string tensor = fmt::format("{}{}", weight, part_suffix(part, PartNames::kGguf));
      writer.add_tensor(tensor, dtype, shape, [tensor, dtype, values](GgufSink sink) {  // when it is written: no copy
        sink(encode_part(tensor, values, dtype));
      });
    };
    add(Part::kLoraA, {lora.rank, site.in}, lora.a);
    add(Part::kLoraB, {site.out, lora.rank}, lora.b);
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
  const auto alpha = static_cast<float>(file.require_float(kAlpha));
  if (!std::isfinite(alpha))
    fail(Error::Kind::kModel, "{}: {} is {}, expected a finite number; export the adapter again", path.string(), kAlpha,
         alpha);

  PartCollector collector(path, PartNames::kGguf);
  for (const GgufTensor& tensor : file.tensors()) {
    std::string_view weight = tensor.name;
    const auto part = take_part(&weight, PartNames::kGguf);
    collector.add(part, parse_gguf_tensor_name(weight, base.family), tensor.name, tensor.dtype, tensor.shape,
                  tensor.data);
  }
  AdapterFile adapter;
  adapter.format = "gguf";
  adapter.sites =
      collector.sites("LoRA factors of a known layer",
                      fmt::format("{}{}: train linear layers of the decoder only", gguf_tensor_name(SiteName::kQ, 0),
                                  part_suffix(Part::kLoraA, PartNames::kGguf)));
  for (AdaptedSite& site : adapter.sites) {
    auto& lora = std::get<LoraFactors>(site.factors);
    // llama.cpp takes alpha 0 for "no scaling".
    lora.alpha = alpha == 0 ? static_cast<float>(lora.rank) : alpha;
    const std::span<const int32_t> map = row_map_of(base, site);
    if (map.empty()) continue;
    if (std::ssize(map) != site.out)
      fail(Error::Kind::kModel,
           "{}: the factor B of {} has {} rows, expected {}; use the base model the adapter was trained on",
           path.string(), site_label(site.layer, site.site), site.out, map.size());
    lora.b = reordered(lora.b, lora.rank, [&](int64_t row) { return int64_t{map[static_cast<size_t>(row)]}; });
  }
  adapter.base_model = file.string_or(kBaseName, "");
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(kOwnMetadata)) adapter.metadata[key] = file.require_string(key);
  return adapter;
}

}  // namespace patina
