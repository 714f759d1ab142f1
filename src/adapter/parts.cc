#include "adapter/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "adapter/sites.h"
#include "formats/printable.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace patina {
namespace {

constexpr int kAfterAllLayers = std::numeric_limits<int>::max();

struct Row {
  Part part;
  std::string_view suffix[4];  // by PartNames
};
constexpr Row kTable[] = {
    {Part::kLoraA, {".lora_A.weight", ".lora_down.weight", ".lora_a", ".lora_a"}},
    {Part::kLoraB, {".lora_B.weight", ".lora_up.weight", ".lora_b", ".lora_b"}},
    {Part::kMagnitude, {".lora_magnitude_vector", ".dora_scale", "", ".m"}},
    {Part::kW1, {".lokr_w1", ".lokr_w1", "", ""}},
    {Part::kW1A, {".lokr_w1_a", ".lokr_w1_a", "", ""}},
    {Part::kW1B, {".lokr_w1_b", ".lokr_w1_b", "", ""}},
    {Part::kW2, {".lokr_w2", ".lokr_w2", "", ""}},
    {Part::kW2A, {".lokr_w2_a", ".lokr_w2_a", "", ""}},
    {Part::kW2B, {".lokr_w2_b", ".lokr_w2_b", "", ""}},
    {Part::kAlpha, {"", ".alpha", "", ""}},
};

consteval bool rows_follow_enum() {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<size_t>(kTable[i].part) != i) return false;
  return true;
}
static_assert(rows_follow_enum(), "part_suffix() indexes the table by part");

void add_factor(std::vector<PartView>* parts, const KroneckerFactor& factor, int64_t dim, Part whole, Part a, Part b) {
  if (factor.is_whole()) {
    parts->push_back({whole, {factor.rows, factor.columns}, factor.whole});
  } else {
    parts->push_back({a, {factor.rows, dim}, factor.a});
    parts->push_back({b, {dim, factor.columns}, factor.b});
  }
}

// Row c of the result is column c.
PartValues transposed(const PartValues& part) {
  const int64_t rows = part.shape[0], columns = part.shape[1];
  PartValues result{{columns, rows}, std::vector<float>(part.values.size())};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      result.values[static_cast<size_t>(c * rows + r)] = part.values[static_cast<size_t>(r * columns + c)];
  return result;
}

// `stored`: the values as their type holds them.
void check_finite(const std::string& tensor, std::span<const float> values, std::span<const float> stored,
                  DType dtype) {
  for (size_t i = 0; i < stored.size(); ++i)
    if (!std::isfinite(stored[i]))
      fail(Error::Kind::kModel, "tensor {} holds {}, which {} cannot; export it as f32 or bf16", printable(tensor),
           values[i], name(dtype));
}

PartValues decode_part(const std::string& file, const std::string& tensor, DType dtype, const Shape& shape,
                       const std::byte* data) {
  if (shape.rank() > 2 || shape.elements() == 0)
    fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected a matrix; adapters of convolutions are not read",
         file, printable(tensor), shape.str());
  if (!is_decodable(dtype))
    fail(Error::Kind::kModel, "{}: tensor {} has type {}, which cannot be read; export the adapter as F32, F16 or BF16",
         file, printable(tensor), name(dtype));
  PartValues part{shape, std::vector<float>(static_cast<size_t>(shape.elements()))};
  // A copy, because in a safetensors file it may lie at any byte.
  const std::vector<std::byte> aligned(data, data + bytes_of(dtype, shape.elements()));
  decode_row(dtype)(aligned.data(), 0, shape.elements(), part.values.data());
  const auto wrong = std::ranges::find_if_not(part.values, [](float value) { return std::isfinite(value); });
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1], place = wrong - part.values.begin();
  if (wrong != part.values.end())
    fail(Error::Kind::kModel,
         "{}: tensor {} holds {} in row {}, column {}, expected finite numbers; the training that made it diverged or "
         "the file is damaged",
         file, printable(tensor), *wrong, place / columns, place % columns);
  return part;
}

}  // namespace

std::string_view part_suffix(Part part, PartNames names) {
  return kTable[static_cast<size_t>(part)].suffix[static_cast<size_t>(names)];
}

std::optional<Part> take_part(std::string_view* tensor, PartNames names) {
  for (const Row& row : kTable) {
    const std::string_view suffix = row.suffix[static_cast<size_t>(names)];
    if (suffix.empty() || !tensor->ends_with(suffix)) continue;
    tensor->remove_suffix(suffix.size());
    return row.part;
  }
  return std::nullopt;
}

std::vector<PartView> parts_of(const AdaptedSite& site) {
  std::vector<PartView> parts;
  if (const auto* lora = std::get_if<LoraFactors>(&site.factors)) {
    parts.push_back({Part::kLoraA, {lora->rank, site.in}, lora->a});
    parts.push_back({Part::kLoraB, {site.out, lora->rank}, lora->b});
    if (!lora->magnitude.empty()) parts.push_back({Part::kMagnitude, {site.out}, lora->magnitude});
  } else {
    const auto& lokr = std::get<LokrFactors>(site.factors);
    add_factor(&parts, lokr.w1, lokr.dim, Part::kW1, Part::kW1A, Part::kW1B);
    add_factor(&parts, lokr.w2, lokr.dim, Part::kW2, Part::kW2A, Part::kW2B);
  }
  for (const PartView& part : parts)
    PATINA_CHECK(part.shape.elements() == std::ssize(part.values), "{}: {} numbers for {}", site.site,
                 part.values.size(), part.shape.str());
  return parts;
}

DType part_type(Part part, DType factors) { return part == Part::kMagnitude ? DType::kF32 : factors; }

std::vector<std::byte> encode_part(const std::string& tensor, std::span<const float> values, DType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> stored(static_cast<size_t>(bytes_of(dtype, count)));
  encode_row(dtype)(values.data(), count, stored.data());
  std::vector<float> back(values.size());
  decode_row(dtype)(stored.data(), 0, count, back.data());
  check_finite(tensor, values, back, dtype);
  return stored;
}

void add_part(SafetensorsWriter* writer, const std::string& tensor, DType dtype, const Shape& shape,
              std::span<const float> values) {
  if (dtype != DType::kF32) return writer->add(tensor, dtype, shape, encode_part(tensor, values, dtype));
  check_finite(tensor, values, values, dtype);
  writer->add_view(tensor, dtype, shape, std::as_bytes(values));
}

SitePlace place_of(const AdaptedSite& site) {
  const auto known = site_from_name(site.site);
  PATINA_CHECK(known, "site {}", site.site);
  return {*known, site.layer};
}

void PartCollector::add(const std::optional<Part>& part, const std::optional<SitePlace>& place,
                        const std::string& tensor, DType dtype, const Shape& shape, const std::byte* data) {
  if (!part || !place) {
    foreign_.push_back(printable(tensor));
    return;
  }
  PartValues values = decode_part(file_, tensor, dtype, shape, data);
  if (names_ == PartNames::kMlx && shape.rank() == 2) values = transposed(values);  // as MLX stores matrices
  Parts& parts = found_[{place->layer == kNoLayer ? kAfterAllLayers : place->layer, place->site}];
  const auto [at, inserted] = parts.try_emplace(*part, Found{tensor, std::move(values)});
  if (!inserted)
    fail(Error::Kind::kModel,
         "{}: tensors {} and {} are the same part of the same layer; expected one; remove the other", file_,
         printable(at->second.tensor), printable(tensor));
}

PartCollector::Found PartCollector::take(Parts& parts, Part part, const std::string& beside) const {
  auto node = parts.extract(part);
  if (node.empty())
    fail(Error::Kind::kModel, "{}: tensor {} has no partner, expected one that ends in {}; export the adapter again",
         file_, printable(beside), part_suffix(part, names_));
  return std::move(node.mapped());
}

namespace {

// [n] for one that is written [n,1].
void flatten_column(Shape* shape) {
  if (shape->rank() == 2 && (*shape)[1] == 1) *shape = Shape{(*shape)[0]};
}

}  // namespace

AdaptedSite PartCollector::lora(Parts& parts) const {
  const std::string first = parts.begin()->second.tensor;
  const Found a = take(parts, Part::kLoraA, first), b = take(parts, Part::kLoraB, first);
  const Shape &sa = a.values.shape, &sb = b.values.shape;
  if (sa.rank() != 2 || sb.rank() != 2 || sa[0] != sb[1])
    fail(Error::Kind::kModel,
         "{}: tensors {} {} and {} {} do not fit: expected [rank, in] and [out, rank] of one rank; export the adapter "
         "again",
         file_, printable(a.tensor), sa.str(), printable(b.tensor), sb.str());
  LoraFactors factors{sa[0], 0.0f, a.values.values, b.values.values, {}};
  if (auto node = parts.extract(Part::kMagnitude); !node.empty()) {
    Found& magnitude = node.mapped();
    flatten_column(&magnitude.values.shape);
    if (!(magnitude.values.shape == Shape{sb[0]}))
      fail(Error::Kind::kModel,
           "{}: tensor {} has shape {}, expected [{}], a magnitude for each output; magnitudes of inputs ([1, in], an "
           "old LyCORIS form) are not read: merge the adapter with the program that made it",
           file_, printable(magnitude.tensor), magnitude.values.shape.str(), sb[0]);
    factors.magnitude = std::move(magnitude.values.values);
  }
  return {0, "", sa[1], sb[0], std::move(factors)};
}

KroneckerFactor PartCollector::factor(Parts& parts, Part whole, Part a, Part b, const std::string& beside) const {
  if (!parts.contains(a) && !parts.contains(b)) {
    Found found = take(parts, whole, beside);
    const Shape shape = found.values.shape;
    if (shape.rank() != 2)
      fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected a matrix; export the adapter again", file_,
           printable(found.tensor), shape.str());
    return {shape[0], shape[1], std::move(found.values.values), {}, {}};
  }
  Found left = take(parts, a, beside), right = take(parts, b, beside);
  const Shape &sl = left.values.shape, &sr = right.values.shape;
  if (sl.rank() != 2 || sr.rank() != 2 || sl[1] != sr[0])
    fail(Error::Kind::kModel,
         "{}: tensors {} {} and {} {} do not fit: expected [rows, dim] and [dim, columns]; export the adapter again",
         file_, printable(left.tensor), sl.str(), printable(right.tensor), sr.str());
  return {sl[0], sr[1], {}, std::move(left.values.values), std::move(right.values.values)};
}

AdaptedSite PartCollector::lokr(Parts& parts) const {
  const std::string first = parts.begin()->second.tensor;
  LokrFactors factors{0, 0.0f, factor(parts, Part::kW1, Part::kW1A, Part::kW1B, first),
                      factor(parts, Part::kW2, Part::kW2A, Part::kW2B, first)};
  for (const KroneckerFactor* low : {&factors.w1, &factors.w2}) {
    if (low->is_whole()) continue;
    const int64_t dim = std::ssize(low->a) / low->rows;
    if (factors.dim != 0 && dim != factors.dim)
      fail(Error::Kind::kModel, "{}: the two factors of {} have dims {} and {}, expected one; export the adapter again",
           file_, printable(first), factors.dim, dim);
    factors.dim = dim;
  }
  AdaptedSite site{0, "", 0, 0, {}};
  if (__builtin_mul_overflow(factors.w1.rows, factors.w2.rows, &site.out) ||
      __builtin_mul_overflow(factors.w1.columns, factors.w2.columns, &site.in))
    fail(Error::Kind::kModel, "{}: the product of the factors of {} is larger than any weight; the file is damaged",
         file_, printable(first));
  site.factors = std::move(factors);
  return site;
}

std::vector<AdaptedSite> PartCollector::sites(std::string_view what, const std::string& expected) {
  if (!foreign_.empty())
    fail(Error::Kind::kModel, "{}: holds tensors that are no {}: {}; expected names such as {}", file_, what,
         listed(foreign_), expected);
  std::vector<AdaptedSite> sites;
  for (auto& [key, parts] : found_) {
    const auto alpha = parts.extract(Part::kAlpha);
    if (parts.empty())
      fail(Error::Kind::kModel, "{}: tensor {} stands alone, expected factors beside it; export the adapter again",
           file_, printable(alpha.mapped().tensor));
    const bool is_lora = parts.contains(Part::kLoraA) || parts.contains(Part::kLoraB);
    AdaptedSite site = is_lora ? lora(parts) : lokr(parts);
    if (!parts.empty())
      fail(Error::Kind::kModel,
           "{}: tensor {} does not belong to the other factors of its layer; export the adapter again", file_,
           printable(parts.begin()->second.tensor));
    site.layer = key.first == kAfterAllLayers ? kNoLayer : key.first;
    site.site = site_name(key.second);
    if (!alpha.empty()) {
      if (alpha.mapped().values.values.size() != 1)
        fail(Error::Kind::kModel, "{}: tensor {} has shape {}, expected one number; export the adapter again", file_,
             printable(alpha.mapped().tensor), alpha.mapped().values.shape.str());
      std::visit([&](auto& factors) { factors.alpha = alpha.mapped().values.values[0]; }, site.factors);
    }
    sites.push_back(std::move(site));
  }
  if (sites.empty()) fail(Error::Kind::kModel, "{}: holds no factors of a known layer; expected an adapter", file_);
  return sites;
}

}  // namespace patina
