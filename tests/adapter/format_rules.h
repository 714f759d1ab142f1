// What the tensors of an adapter file mean, by the rule of its format and without our reader.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "adapter/files.h"
#include "adapter/matrix.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/names.h"
#include "formats/safetensors.h"

namespace patina::testing {

// Tensors of a file, by name: F32 and BF16.
class FileTensors {
 public:
  explicit FileTensors(const SafetensorsFile& file) {
    for (const SafetensorsTensor& t : file.tensors()) add(t.name, t.data, t.dtype, t.shape);
  }
  explicit FileTensors(const GgufFile& file) {
    for (const GgufTensor& t : file.tensors()) add(t.name, t.data, t.dtype, t.shape);
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const Matrix& take(const std::string& name) {
    taken_.insert(name);
    return tensors_.at(name);
  }
  Shape shape(const std::string& name) const { return shapes_.at(name); }
  void expect_all_taken() const { EXPECT_EQ(taken_.size(), tensors_.size()); }
  // w1 or w2 of a LoKr; `dim` becomes its dim where it is low-rank.
  Matrix factor(const std::string& name, double* dim) {
    if (has(name)) return take(name);
    *dim = static_cast<double>(take(name + "_b").rows);
    return product(take(name + "_a"), take(name + "_b"));
  }

 private:
  void add(const std::string& name, const std::byte* data, DType dtype, const Shape& shape) {
    Matrix result{shape.rank() > 0 ? shape[0] : 1, shape.rank() > 1 ? shape[1] : 1, {}};
    for (int64_t i = 0; i < shape.elements(); ++i) {
      float value = 0;
      if (dtype == DType::kF32) {
        std::memcpy(&value, data + 4 * i, 4);
      } else {
        uint16_t half = 0;
        std::memcpy(&half, data + 2 * i, 2);
        EXPECT_EQ(dtype, DType::kBF16);
        value = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
      }
      result.values.push_back(static_cast<double>(value));
    }
    tensors_[name] = std::move(result), shapes_[name] = shape;
  }

  std::map<std::string, Matrix> tensors_;
  std::map<std::string, Shape> shapes_;
  std::set<std::string> taken_;
};

// W of a site, in Hugging Face order.
using WeightOf = std::function<Matrix(const AdaptedSite&)>;

inline std::vector<Matrix> deltas_of_peft(const std::filesystem::path& directory, std::span<const AdaptedSite> sites,
                                          const WeightOf& weight) {
  const nlohmann::json config = nlohmann::json::parse(read_file(directory / "adapter_config.json"));
  FileTensors tensors(SafetensorsFile::open(directory / "adapter_model.safetensors"));
  std::vector<Matrix> deltas;
  for (const AdaptedSite& site : sites) {
    const std::string module = hf_module_path(site_from_alias(site.site).value(), site.layer);
    const std::string key = "base_model.model." + module;
    const double rank = config["rank_pattern"].value(module, config["r"].get<double>());
    if (config["peft_type"] == "LOKR") {
      double dim = 0;
      const Matrix w1 = tensors.factor(key + ".lokr_w1", &dim), w2 = tensors.factor(key + ".lokr_w2", &dim);
      EXPECT_TRUE(dim == 0 || dim == rank) << module;
      deltas.push_back(
          scaled(config["alpha_pattern"].value(module, config["alpha"].get<double>()) / rank, kron(w1, w2)));
      continue;
    }
    const Matrix a = tensors.take(key + ".lora_A.weight"), b = tensors.take(key + ".lora_B.weight");
    EXPECT_EQ(static_cast<double>(a.rows), rank);
    deltas.push_back(
        scaled(config["alpha_pattern"].value(module, config["lora_alpha"].get<double>()) / rank, product(b, a)));
    EXPECT_EQ(config["use_dora"], tensors.has(key + ".lora_magnitude_vector"));
    if (!config["use_dora"]) continue;
    EXPECT_EQ(tensors.shape(key + ".lora_magnitude_vector"), Shape{site.out});
    deltas.back() = with_magnitude(deltas.back(), tensors.take(key + ".lora_magnitude_vector"), weight(site));
  }
  tensors.expect_all_taken();
  return deltas;
}

inline std::vector<Matrix> deltas_of_lycoris(const std::filesystem::path& path, std::span<const AdaptedSite> sites,
                                             const WeightOf& weight) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  FileTensors tensors(file);
  std::vector<Matrix> deltas;
  for (const AdaptedSite& site : sites) {
    std::string key = "lycoris_" + hf_module_path(site_from_alias(site.site).value(), site.layer);
    std::replace(key.begin(), key.end(), '.', '_');
    EXPECT_EQ(tensors.shape(key + ".alpha"), Shape{});
    const double alpha = tensors.take(key + ".alpha").values[0];
    if (std::holds_alternative<LokrFactors>(site.factors)) {
      double dim = 0;
      const Matrix w1 = tensors.factor(key + ".lokr_w1", &dim), w2 = tensors.factor(key + ".lokr_w2", &dim);
      deltas.push_back(scaled(dim > 0 ? alpha / dim : 1.0, kron(w1, w2)));
      EXPECT_EQ(nlohmann::json::parse(file.metadata().at("lokr_config"))["linear_dim"],
                std::get<LokrFactors>(sites.front().factors).dim);
      EXPECT_EQ(nlohmann::json::parse(file.metadata().at("ss_network_args"))["algo"], "lokr");
      continue;
    }
    const Matrix down = tensors.take(key + ".lora_down.weight"), up = tensors.take(key + ".lora_up.weight");
    deltas.push_back(scaled(alpha / static_cast<double>(down.rows), product(up, down)));
    if (!tensors.has(key + ".dora_scale")) continue;
    EXPECT_EQ(tensors.shape(key + ".dora_scale"), (Shape{site.out, 1}));
    deltas.back() = with_magnitude(deltas.back(), tensors.take(key + ".dora_scale"), weight(site));
  }
  tensors.expect_all_taken();
  return deltas;
}

inline std::vector<Matrix> deltas_of_gguf(const std::filesystem::path& path, std::span<const AdaptedSite> sites,
                                          const AdapterBase& base) {
  const GgufFile file = GgufFile::open(path);
  FileTensors tensors(file);
  std::vector<Matrix> deltas;
  for (const AdaptedSite& site : sites) {
    const std::string key = gguf_tensor_name(site_from_alias(site.site).value(), site.layer);
    const Matrix a = tensors.take(key + ".lora_a"), b = tensors.take(key + ".lora_b");
    const Matrix stored =
        scaled(file.require_float("adapter.lora.alpha") / static_cast<double>(b.columns), product(b, a));
    const std::span<const int32_t> map = base.row_map(site.layer, site.site);
    deltas.push_back(build(stored.rows, stored.columns, [&](int64_t r, int64_t c) {
      return stored.at(map.empty() ? r : map[static_cast<size_t>(r)], c);
    }));
  }
  tensors.expect_all_taken();
  return deltas;
}

// The change of every site's weight [out,in] that a file means: of no others does it hold tensors.
inline std::vector<Matrix> deltas_of_file(AdapterFormat format, const std::filesystem::path& path,
                                          std::span<const AdaptedSite> sites, const AdapterBase& base,
                                          const WeightOf& weight) {
  switch (format) {
    case AdapterFormat::kPeft:
      return deltas_of_peft(path, sites, weight);
    case AdapterFormat::kLycoris:
      return deltas_of_lycoris(path, sites, weight);
    case AdapterFormat::kGguf:
      return deltas_of_gguf(path, sites, base);
  }
  return {};
}

}  // namespace patina::testing
