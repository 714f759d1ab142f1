#include "adapter/merge.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "adapter/delta.h"
#include "adapter/parts.h"
#include "formats/names.h"
#include "formats/rewrite.h"
#include "quant/decode.h"

namespace patina {
namespace {

// One tensor on its way into the new file, whose rows come in the file's order.
class Merging {
 public:
  Merging(const GgufFile& model, const GgufTensor& tensor, const AdaptedSite& site, std::span<const int32_t> row_map,
          double weight, DType dtype)
      : tensor_(tensor),
        site_(site),
        weight_(weight),
        encoder_(model, tensor, dtype),
        rows_(static_cast<size_t>(site.out)),
        retained_(static_cast<size_t>(site.out)) {
    for (int64_t row = 0; row < site.out; ++row)
      rows_.at(static_cast<size_t>(row_map.empty() ? row : row_map[static_cast<size_t>(row)])) = row;
  }

  void write(ThreadPool& pool, GgufSink sink) {
    std::vector<Scratch> scratch(static_cast<size_t>(pool.size()));
    stream_rows(site_.out, encoder_.row_bytes(), pool, sink, [&](int64_t stored, int worker, std::byte* out) {
      merge_row(stored, scratch[static_cast<size_t>(worker)], out);
    });
  }

  // Added up in the order of rows, whatever the threads.
  Retention retention() const {
    Retention sum;
    for (const Retention& row : retained_) sum += row;
    return sum;
  }

 private:
  struct Scratch {
    std::vector<float> before, after;
    std::vector<double> delta;
  };

  void merge_row(int64_t stored, Scratch& scratch, std::byte* out) {
    auto& [before, after, delta] = scratch;
    const auto in = static_cast<size_t>(site_.in);
    before.resize(in), after.resize(in), delta.resize(in);
    decode_row(tensor_.dtype)(tensor_.data + stored * bytes_of(tensor_.dtype, site_.in), 0, site_.in, before.data());
    delta_row(site_, rows_[static_cast<size_t>(stored)], before, delta);
    for (size_t i = 0; i < in; ++i) after[i] = static_cast<float>(static_cast<double>(before[i]) + weight_ * delta[i]);
    encoder_.encode(stored, after, out);
    Retention& sum = retained_[static_cast<size_t>(stored)];
    for (size_t i = 0; i < in; ++i) {
      const double wanted = weight_ * delta[i];
      const double realised = static_cast<double>(after[i]) - static_cast<double>(before[i]);
      sum += {wanted * wanted, realised * realised, wanted * realised};
    }
  }

  const GgufTensor& tensor_;
  const AdaptedSite& site_;
  double weight_;
  RowEncoder encoder_;
  std::vector<int64_t> rows_;  // in Hugging Face order, by stored row
  std::vector<Retention> retained_;
};

}  // namespace

double Retention::cosine() const {
  return wanted > 0.0 && realised > 0.0 ? product / std::sqrt(wanted * realised) : 0.0;
}
double Retention::energy() const { return wanted > 0.0 ? realised / wanted : 0.0; }
Retention& Retention::operator+=(const Retention& other) {
  wanted += other.wanted, realised += other.realised, product += other.product;
  return *this;
}

DType merged_type(DType dtype) {
  constexpr DType kKept[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0};
  return std::ranges::find(kKept, dtype) != std::end(kKept) ? dtype : DType::kF16;
}

std::vector<MergedTensor> merge_adapter(const GgufFile& model, std::span<const AdaptedSite> sites,
                                        const AdapterBase& base, const MergeOptions& options,
                                        const std::filesystem::path& path, ThreadPool& pool) {
  std::map<std::string, const AdaptedSite*> site_of;
  for (const AdaptedSite& site : sites) site_of[gguf_tensor_name(place_of(site).site, site.layer)] = &site;
  std::vector<DType> types;
  for (const GgufTensor& tensor : model.tensors())
    types.push_back(site_of.contains(tensor.name)
                        ? converted_type(tensor, options.dtype.value_or(merged_type(tensor.dtype)))
                        : tensor.dtype);
  GgufWriter writer = rewriting_writer(model, types);
  std::vector<MergedTensor> merged;
  for (size_t i = 0; i < types.size(); ++i) {
    const GgufTensor& tensor = model.tensors()[i];
    const auto found = site_of.find(tensor.name);
    writer.add_tensor(tensor.name, types[i], tensor.shape, [&, type = types[i], found](GgufSink sink) {
      if (found == site_of.end()) return sink({tensor.data, static_cast<size_t>(tensor.bytes)});
      const AdaptedSite& site = *found->second;
      PATINA_CHECK((tensor.shape == Shape{site.out, site.in}), "{} {}: [{}, {}]", tensor.name, tensor.shape.str(),
                   site.out, site.in);
      Merging merging(model, tensor, site,
                      base.row_map ? base.row_map(site.layer, site.site) : std::span<const int32_t>(), options.weight,
                      type);
      merging.write(pool, sink);
      merged.push_back({tensor.name, tensor.dtype, type, merging.retention()});
    });
  }
  writer.write(path, [&] {
    PATINA_CHECK(merged.size() == site_of.size(), "{} of {} sites are in {}", merged.size(), site_of.size(),
                 model.path().string());
    Retention all;
    for (const MergedTensor& tensor : merged) all += tensor.retention;
    if (all.wanted == 0.0)
      fail(Error::Kind::kModel,
           "the adapter changes nothing of {}: it is untrained or its weight is 0; nothing was written",
           model.path().string());
    if (all.realised == 0.0)
      fail(Error::Kind::kModel,
           "the merged file would be equal to {}: its types swallow the whole adapter; choose a finer --type such as "
           "f16, nothing was written",
           model.path().string());
  });
  return merged;
}

}  // namespace patina
