#include "adapter/files.h"

#include <cmath>
#include <limits>

#include "adapter/factors.h"
#include "formats/printable.h"
#include "quant/decode.h"

namespace patina {
namespace {

constexpr int kAfterAllLayers = std::numeric_limits<int>::max();

}  // namespace

AdapterFile read_adapter(const std::filesystem::path& path, const AdapterBase& base) {
  constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors";
  if (std::filesystem::is_directory(path)) return read_peft(path / kConfig, path / kWeights);
  if (path.extension() == ".safetensors") return read_peft(path.parent_path() / kConfig, path);
  return read_gguf_lora(path, base);
}

SitePlace place_of(const AdaptedSite& site) {
  const auto name = site_from_alias(site.site);
  PATINA_CHECK(name, "site {}", site.site);
  return {*name, site.layer};
}

const LoraFactors& lora_of(const AdaptedSite& site) {
  const auto* const lora = std::get_if<LoraFactors>(&site.factors);
  PATINA_CHECK(lora != nullptr && lora->magnitude.empty(), "{} is not plain LoRA", site.site);
  return *lora;
}

void FactorCollector::add(const SitePlace& place, Factor factor, const std::string& tensor, DType dtype,
                          const Shape& shape, const std::byte* data) {
  Matrix& matrix = found_[{place.layer == kNoLayer ? kAfterAllLayers : place.layer, place.site}][factor];
  if (!matrix.tensor.empty())
    fail(Error::Kind::kModel, "{}: tensors {} and {} are factor {} of the same layer; expected one; remove the other",
         file_, printable(matrix.tensor), printable(tensor), factor == kA ? "A" : "B");
  if (shape.rank() != 2 || shape.elements() == 0)
    fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected a matrix {}; export the adapter again", file_,
         printable(tensor), shape.str(), factor == kA ? "[rank, in]" : "[out, rank]");
  if (!is_decodable(dtype))
    fail(Error::Kind::kModel, "{}: tensor {} has type {}, which cannot be read; export the adapter as F32, F16 or BF16",
         file_, printable(tensor), name(dtype));
  matrix = {tensor, shape, std::vector<float>(static_cast<size_t>(shape.elements()))};
  // A copy, because in a safetensors file it may lie at any byte.
  const std::vector<std::byte> aligned(data, data + bytes_of(dtype, shape.elements()));
  decode_row(dtype)(aligned.data(), 0, shape.elements(), matrix.values.data());
  for (size_t i = 0; i < matrix.values.size(); ++i)
    if (!std::isfinite(matrix.values[i]))
      fail(Error::Kind::kModel,
           "{}: tensor {} holds {} in row {}, column {}, expected finite numbers; the training that "
           "made it diverged or the file is damaged",
           file_, printable(tensor), matrix.values[i], static_cast<int64_t>(i) / shape[1],
           static_cast<int64_t>(i) % shape[1]);
}

std::vector<AdaptedSite> FactorCollector::sites() {
  std::vector<AdaptedSite> sites;
  for (auto& [key, factors] : found_) {
    auto& [a, b] = factors;
    if (a.tensor.empty() || b.tensor.empty())
      fail(Error::Kind::kModel,
           "{}: tensor {} has no partner, expected a factor {} of the same layer; export the adapter "
           "again",
           file_, printable(a.tensor.empty() ? b.tensor : a.tensor), a.tensor.empty() ? "A" : "B");
    if (a.shape[0] != b.shape[1])
      fail(Error::Kind::kModel,
           "{}: tensors {} {} and {} {} do not fit: expected [rank, in] and [out, rank] of one rank; "
           "export the adapter again",
           file_, printable(a.tensor), a.shape.str(), printable(b.tensor), b.shape.str());
    sites.push_back({key.first == kAfterAllLayers ? kNoLayer : key.first, std::string(site_name(key.second)),
                     a.shape[1], b.shape[0],
                     LoraFactors{a.shape[0], 0.0f, std::move(a.values), std::move(b.values), {}}});
  }
  if (sites.empty()) fail(Error::Kind::kModel, "{}: holds no LoRA factors; expected an adapter", file_);
  return sites;
}

}  // namespace patina
