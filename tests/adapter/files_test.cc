#include "adapter/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "adapter/sites.h"
#include "base/file.h"
#include "base/philox.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "support/adapted.h"

namespace patina {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::lora;

std::vector<float> numbers(int64_t count, uint32_t which) {
  const RandomStream stream(9, RandomUse::kTest, which);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

AdaptedSite pair_at(int layer, const std::string& site, int64_t in, int64_t out, int64_t rank, float alpha) {
  const uint32_t seed = static_cast<uint32_t>(layer + 1) * 1000 + static_cast<uint32_t>(site[0]) * 2;
  return {layer, site, in, out, LoraFactors{rank, alpha, numbers(rank * in, seed), numbers(out * rank, seed + 1), {}}};
}

// q, v and down of both layers, lm_head; in file order.
std::vector<AdaptedSite> some_pairs() {
  std::vector<AdaptedSite> pairs;
  for (int layer = 0; layer < 2; ++layer) {
    pairs.push_back(pair_at(layer, "q", 6, 8, 2, 3));
    pairs.push_back(pair_at(layer, "v", 6, 4, 2, 3));
    pairs.push_back(pair_at(layer, "down", 10, 6, 2, 3));
  }
  pairs.push_back(pair_at(-1, "lm_head", 6, 20, 2, 3));
  return pairs;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << where;
}

void expect_same(const std::vector<AdaptedSite>& got, const std::vector<AdaptedSite>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string where = site_label(expected[i].layer, expected[i].site);
    EXPECT_EQ(site_label(got[i].layer, got[i].site), where);
    EXPECT_EQ(got[i].in, expected[i].in) << where;
    EXPECT_EQ(got[i].out, expected[i].out) << where;
    EXPECT_EQ(lora(got[i]).rank, lora(expected[i]).rank) << where;
    EXPECT_EQ(lora(got[i]).alpha, lora(expected[i]).alpha) << where;
    expect_same_bits(lora(got[i]).a, lora(expected[i]).a, where);
    expect_same_bits(lora(got[i]).b, lora(expected[i]).b, where);
  }
}

class AdapterFiles : public ::testing::Test {
 protected:
  AdapterFiles() {
    std::string pattern = (fs::temp_directory_path() / "patina-adapter-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    gguf_ = directory_ / "adapter.gguf";
    base_ = {"some/base", "llama", 2, [this](int, std::string_view site) {
               return site == "q" ? std::span<const int32_t>(q_rows_) : std::span<const int32_t>();
             }};
  }
  ~AdapterFiles() override { fs::remove_all(directory_); }

  json config() const { return json::parse(read_file(directory_ / "adapter_config.json")); }
  // Writes the plain adapter and changes one key of its config.
  void with_config(const std::string& key, const json& value) {
    write_adapter(AdapterFormat::kPeft, directory_, {some_pairs(), "", {}}, base_);
    json changed = config();
    changed[key] = value;
    write_file(directory_ / "adapter_config.json", changed.dump());
  }
  // A PEFT directory with these tensors under a plain config of rank 2.
  void write_weights(const SafetensorsWriter& writer) {
    with_config("target_modules", nullptr);
    writer.write(directory_ / "adapter_model.safetensors");
  }

  // The error of reading, which must name the file and hold every part.
  void expect_refused(const fs::path& path, const std::vector<std::string>& parts) {
    try {
      read_adapter(path, base_);
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), Error::Kind::kModel) << text;
      EXPECT_NE(text.find(directory_.string()), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
      return;
    }
    ADD_FAILURE() << "no error; expected " << parts[0];
  }

  fs::path directory_, gguf_;
  std::vector<int32_t> q_rows_ = {0, 2, 1, 3, 4, 6, 5, 7};
  AdapterBase base_;
};

std::span<const std::byte> bytes_of_floats(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";

TEST_F(AdapterFiles, PeftRoundTrip) {
  write_adapter(AdapterFormat::kPeft, directory_, {some_pairs(), "", {{"patina.version", "0.1.0"}}}, base_);
  for (const fs::path& path : {directory_, directory_ / "adapter_model.safetensors"}) {
    const AdapterFile back = read_adapter(path, base_);
    expect_same(back.sites, some_pairs());
    EXPECT_EQ(back.base_model, "some/base");
    EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"patina.version", "0.1.0"}}));
  }
}

// The bytes by the two formats' own rules, without our reader.
TEST_F(AdapterFiles, PeftBytes) {
  const std::vector<AdaptedSite> pairs = some_pairs();
  write_adapter(AdapterFormat::kPeft, directory_, {pairs, "", {{"patina.x", "y"}}}, base_);
  EXPECT_EQ(config(), json::parse(R"({"peft_type": "LORA", "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "some/base", "r": 2, "lora_alpha": 3, "lora_dropout": 0.0,
    "target_modules": ["q_proj", "v_proj", "down_proj", "lm_head"], "bias": "none", "fan_in_fan_out": false,
    "inference_mode": true, "init_lora_weights": true, "use_rslora": false, "use_dora": false, "rank_pattern": {},
    "alpha_pattern": {}, "modules_to_save": null})"));

  const std::string bytes = read_file(directory_ / "adapter_model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const json header = json::parse(bytes.substr(8, length));
  EXPECT_EQ(header["__metadata__"], json::parse(R"({"format": "pt", "patina.x": "y"})"));
  EXPECT_EQ(header.size(), 15u);
  const auto expect_tensor = [&](const std::string& key, const json& shape, const std::vector<float>& values) {
    ASSERT_TRUE(header.contains(key)) << key;
    EXPECT_EQ(header[key]["dtype"], "F32") << key;
    EXPECT_EQ(header[key]["shape"], shape) << key;
    const size_t begin = header[key]["data_offsets"][0];
    const std::string stored = bytes.substr(8 + length + begin, values.size() * 4);
    EXPECT_EQ(stored, std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)) << key;
  };
  expect_tensor(kQ + ".lora_A.weight", {2, 6}, lora(pairs[0]).a);
  expect_tensor(kQ + ".lora_B.weight", {8, 2}, lora(pairs[0]).b);  // rows in Hugging Face order: no row map
  expect_tensor("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", {2, 10}, lora(pairs[5]).a);
  expect_tensor("base_model.model.lm_head.lora_B.weight", {20, 2}, lora(pairs[6]).b);
}

TEST_F(AdapterFiles, PeftTargetsOfSomeLayers) {
  base_.layers = 12;
  write_adapter(AdapterFormat::kPeft, directory_, {{pair_at(1, "q", 6, 8, 2, 3), pair_at(11, "q", 6, 8, 2, 3)}, "", {}},
                base_);
  EXPECT_EQ(config()["target_modules"],
            json::parse(R"(["model.layers.1.self_attn.q_proj", "model.layers.11.self_attn.q_proj"])"));
}

TEST_F(AdapterFiles, PeftRanksAndAlphasThatDiffer) {
  std::vector<AdaptedSite> pairs = some_pairs();
  pairs[1] = pair_at(0, "v", 6, 4, 5, 3);
  lora(pairs[3]).alpha = 0.3f;
  write_adapter(AdapterFormat::kPeft, directory_, {pairs, "", {}}, base_);
  EXPECT_EQ(config()["r"], 2);
  EXPECT_EQ(config()["rank_pattern"], json::parse(R"({"model.layers.0.self_attn.v_proj": 5})"));
  EXPECT_EQ(config()["alpha_pattern"].size(), 1u);
  EXPECT_EQ(config()["alpha_pattern"]["model.layers.1.self_attn.q_proj"], static_cast<double>(0.3f));
  expect_same(read_adapter(directory_, base_).sites, pairs);
}

TEST_F(AdapterFiles, PeftPatternsMatchAsSuffixOrExpressionFirstOneFirst) {
  write_adapter(AdapterFormat::kPeft, directory_, {some_pairs(), "", {}}, base_);
  std::string text = read_file(directory_ / "adapter_config.json");
  const std::string empty = "\"alpha_pattern\": {}";
  text.replace(
      text.find(empty), empty.size(),
      R"("alpha_pattern": {"layers\\.1\\..*": 7, "v_proj": 9, "q_pro": 11, "self_attn.q_proj": 13, "^.*down.*": 15})");
  write_file(directory_ / "adapter_config.json", text);
  const std::vector<AdaptedSite> pairs = read_adapter(directory_, base_).sites;
  const std::vector<float> expected = {13, 9, 15, 7, 7, 7, 3};
  for (size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(lora(pairs[i]).alpha, expected[i]) << i;
}

TEST_F(AdapterFiles, PeftRankStabilised) {
  with_config("use_rslora", true);
  for (const AdaptedSite& pair : read_adapter(directory_, base_).sites)
    EXPECT_TRUE(std::abs(lora(pair).scale() - 3 / std::sqrt(2.0)) <= 1e-6);
}

TEST_F(AdapterFiles, PeftHalfPrecisionAndHeadlessNames) {
  SafetensorsWriter writer;
  const std::vector<uint16_t> a = {0x3f80, 0xc000, 0x0000, 0x3f00};  // BF16: 1, -2, 0, 0.5
  const std::vector<uint16_t> b = {0x3c00, 0xc000, 0x3800, 0x0001};  // F16: 1, -2, 0.5, 2^-24
  writer.add("base_model.model.layers.0.mlp.up_proj.lora_A.weight", DType::kBF16, {2, 2}, std::as_bytes(std::span(a)));
  writer.add("base_model.model.layers.0.mlp.up_proj.lora_B.weight", DType::kF16, {2, 2}, std::as_bytes(std::span(b)));
  write_weights(writer);
  const std::vector<AdaptedSite> pairs = read_adapter(directory_, base_).sites;
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(site_label(pairs[0].layer, pairs[0].site), "layers.0.up");
  expect_same_bits(lora(pairs[0]).a, {1, -2, 0, 0.5f}, "a");
  expect_same_bits(lora(pairs[0]).b, {1, -2, 0.5f, 0x1p-24f}, "b");
}

TEST_F(AdapterFiles, PeftRefusesOptions) {
  const std::vector<std::pair<std::string, json>> options = {
      {"peft_type", "LOHA"},
      {"modules_to_save", {"embed_tokens"}},
      {"bias", "lora_only"},
      {"lora_bias", true},
      {"fan_in_fan_out", true},
      {"layer_replication", json::parse("[[0, 1]]")},
      {"target_parameters", {"experts.gate"}},
      {"trainable_token_indices", {1}},
      {"init_lora_weights", "pissa"},
      {"r", 0},
      {"r", 2.5},
      {"lora_alpha", "3"},
      {"rank_pattern", {"q_proj"}},
      {"rank_pattern", {{"q_proj", "x"}}},
      {"alpha_pattern", {{"q_proj(", 3}}},
      {"alpha_pattern", {{std::string(5000, '('), 3}}},
  };
  for (const auto& [key, value] : options) {
    with_config(key, value);
    expect_refused(directory_, {key, "adapter_config.json", "; "});
  }
  for (const json& harmless : {json(nullptr), json::array(), json(false)}) {
    with_config("modules_to_save", harmless);
    EXPECT_EQ(read_adapter(directory_, base_).sites.size(), 7u);
  }
  with_config("init_lora_weights", "gaussian");
  EXPECT_EQ(read_adapter(directory_, base_).sites.size(), 7u);
}

TEST_F(AdapterFiles, PeftRefusesDamage) {
  expect_refused(directory_, {"adapter_config.json", "missing"});
  with_config("r", 3);
  expect_refused(directory_, {"layers.0.self_attn.q_proj", "rank 2", "expected 3"});
  write_file(directory_ / "adapter_config.json", "{");
  expect_refused(directory_, {"not valid JSON"});
  write_file(directory_ / "adapter_config.json", "[]");
  expect_refused(directory_, {"no JSON object"});
  with_config("r", 2);
  fs::remove(directory_ / "adapter_model.safetensors");
  expect_refused(directory_, {"adapter_model.safetensors", "adapter_model.bin"});
}

TEST_F(AdapterFiles, PeftRefusesTensors) {
  const std::vector<float> values(60, 0.5f);
  const auto refused = [&](const std::vector<std::tuple<std::string, Shape, float>>& tensors,
                           const std::vector<std::string>& parts) {
    SafetensorsWriter writer;
    for (const auto& [name, shape, last] : tensors) {
      std::vector<float> data(static_cast<size_t>(shape.elements()), 0.5f);
      if (!data.empty()) data.back() = last;
      writer.add(name, DType::kF32, shape, bytes_of_floats(data));
    }
    write_weights(writer);
    expect_refused(directory_, parts);
  };
  const std::string a = kQ + ".lora_A.weight", b = kQ + ".lora_B.weight";
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  refused({{a, {2, 6}, 0}}, {"lora_A.weight", ".lora_B.weight"});
  refused({{b, {8, 2}, 0}}, {"lora_B.weight", ".lora_A.weight"});
  refused({{a, {2, 6}, 0}, {b, {8, 3}, 0}}, {"[2, 6]", "[8, 3]"});
  refused({{a, {12}, 0}, {b, {8, 2}, 0}}, {"lora_A.weight", "[12]", "[rank, in]"});
  refused({{a, {0, 6}, 0}, {b, {8, 0}, 0}}, {"lora_A.weight", "[0, 6]"});
  refused({{a, {2, 6}, nan}, {b, {8, 2}, 0}}, {"lora_A.weight", "nan", "row 1, column 5"});
  refused({{a, {2, 6}, 0}, {b, {8, 2}, infinity}}, {"lora_B.weight", "inf", "row 7, column 1"});
  refused({{a, {2, 6}, 0}, {b, {8, 2}, 0}, {kQ + ".lora_magnitude_vector", {8}, 0}}, {"q_proj", "not of the kind"});
  refused({{"base_model.model.model.layers.0.mlp.experts.lora_A.weight", {2, 6}, 0}}, {"experts"});
  refused({{a, {2, 6}, 0}, {"model.layers.0.self_attn.q_proj.lora_A.weight", {2, 6}, 0}}, {"same layer"});
  refused({}, {"no factors"});
}

// Layers that the config names and the weights lack, and the other way round: nothing loads half.
TEST_F(AdapterFiles, PeftTargetsAndWeightsAgree) {
  with_config("target_modules", {"q_proj", "v_proj", "lm_head"});
  expect_refused(directory_, {"model.layers.0.mlp.down_proj is not expected", "model.layers.1.mlp.down_proj", "; "});
  with_config("target_modules", {"q_proj", "v_proj", "down_proj", "up_proj", "lm_head"});
  expect_refused(directory_, {"model.layers.0.mlp.up_proj is missing"});
  with_config("layers_to_transform", {0});
  expect_refused(directory_, {"model.layers.1.self_attn.q_proj is not expected"});
  for (const json& targets : {json(R"(.*\.(q_proj|v_proj|down_proj)|lm_head)"), json(nullptr)}) {
    with_config("target_modules", targets);
    EXPECT_EQ(read_adapter(directory_, base_).sites.size(), 7u);
  }
  base_.layers = 1;
  expect_refused(directory_, {"layers.1.q", "the model has 1 layers"});
}

TEST_F(AdapterFiles, PeftDoraWithoutMagnitudes) {
  with_config("use_dora", true);
  expect_refused(directory_, {"q_proj", "not of the kind"});
}

TEST_F(AdapterFiles, GgufRoundTrip) {
  write_adapter(AdapterFormat::kGguf, gguf_, {some_pairs(), "", {{"patina.version", "0.1.0"}}}, base_);
  const AdapterFile back = read_adapter(gguf_, base_);
  expect_same(back.sites, some_pairs());
  EXPECT_EQ(back.base_model, "some/base");
  EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"patina.version", "0.1.0"}}));
}

TEST_F(AdapterFiles, GgufNamesShapesAndRowOrder) {
  const std::vector<AdaptedSite> pairs = some_pairs();
  write_adapter(AdapterFormat::kGguf, gguf_, {pairs, "", {}}, base_);
  const GgufFile file = GgufFile::open(gguf_);
  EXPECT_EQ(file.require_string("general.type"), "adapter");
  EXPECT_EQ(file.require_string("general.architecture"), "llama");
  EXPECT_EQ(file.require_string("adapter.type"), "lora");
  EXPECT_EQ(file.require_float("adapter.lora.alpha"), 3.0);
  EXPECT_EQ(file.tensors().size(), 14u);
  const auto values_of = [&](const std::string& name, const Shape& shape) {
    const GgufTensor* tensor = file.find_tensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    if (tensor == nullptr || !(tensor->shape == shape)) {
      ADD_FAILURE() << name;
      return values;
    }
    EXPECT_EQ(tensor->dtype, DType::kF32);
    std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
    return values;
  };
  expect_same_bits(values_of("blk.0.attn_q.weight.lora_a", {2, 6}), lora(pairs[0]).a, "a");
  const std::vector<float> b = values_of("blk.0.attn_q.weight.lora_b", {8, 2});
  for (size_t row = 0; row < 8; ++row)
    for (size_t r = 0; r < 2; ++r)
      EXPECT_EQ(b[static_cast<size_t>(q_rows_[row]) * 2 + r], lora(pairs[0]).b[row * 2 + r]);
  EXPECT_NE(b, lora(pairs[0]).b);
  expect_same_bits(values_of("blk.1.ffn_down.weight.lora_b", {6, 2}), lora(pairs[5]).b, "down b");
  expect_same_bits(values_of("output.weight.lora_b", {20, 2}), lora(pairs[6]).b, "head b");
}

// A map that is not its own inverse: scatter on the way out, gather on the way in.
TEST_F(AdapterFiles, GgufRowMapThatIsNoInvolution) {
  q_rows_ = {3, 0, 1, 2, 7, 4, 5, 6};
  write_adapter(AdapterFormat::kGguf, gguf_, {some_pairs(), "", {}}, base_);
  expect_same(read_adapter(gguf_, base_).sites, some_pairs());
  AdapterBase unmapped = base_;
  unmapped.row_map = nullptr;
  const AdaptedSite stored = read_adapter(gguf_, unmapped).sites[0];
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(lora(stored).b[3 * 2 + r], lora(some_pairs()[0]).b[r]);
}

TEST_F(AdapterFiles, GgufFoldsAlphasExactlyWherePossible) {
  std::vector<AdaptedSite> pairs = some_pairs();
  lora(pairs[0]).alpha = 24;               // a power of two times the others: exact
  pairs[1] = pair_at(0, "v", 6, 4, 5, 3);  // another rank needs no folding
  lora(pairs[2]).alpha = 7;                // rounds
  lora(pairs[3]).alpha = 0;                // switched off
  write_adapter(AdapterFormat::kGguf, gguf_, {pairs, "", {}}, base_);
  const std::vector<AdaptedSite> back = read_adapter(gguf_, base_).sites;
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(lora(back[i]).alpha, lora(back[0]).alpha) << i;
    EXPECT_EQ(lora(back[i]).rank, lora(pairs[i]).rank) << i;
    expect_same_bits(lora(back[i]).a, lora(pairs[i]).a, "a");
    const double tolerance = i == 2 ? 1.5 * std::numeric_limits<float>::epsilon() : 0;
    for (size_t j = 0; j < lora(pairs[i]).b.size(); ++j) {
      const double got = static_cast<double>(lora(back[i]).alpha) * lora(back[i]).b[j];
      const double expected = static_cast<double>(lora(pairs[i]).alpha) * lora(pairs[i]).b[j];
      EXPECT_TRUE(std::abs(got - expected) <= tolerance * std::abs(expected)) << i << " " << j;
    }
  }
}

// What a GGUF adapter file may have wrong; `change` gets a writer that has all keys but those in `without`.
class GgufRefusals : public AdapterFiles {
 protected:
  void expect_gguf_refused(const std::map<std::string, std::string>& keys, float alpha,
                           const std::vector<std::tuple<std::string, Shape, float>>& tensors,
                           const std::vector<std::string>& parts) {
    write(keys, alpha, tensors);
    expect_refused(gguf_, parts);
  }
  void write(const std::map<std::string, std::string>& keys, float alpha,
             const std::vector<std::tuple<std::string, Shape, float>>& tensors) {
    std::map<std::string, std::string> all = {
        {"general.type", "adapter"}, {"general.architecture", "llama"}, {"adapter.type", "lora"}};
    for (const auto& [key, value] : keys) all[key] = value;
    GgufWriter writer;
    for (const auto& [key, value] : all) writer.set(key, value);
    if (alpha != -1) writer.set("adapter.lora.alpha", alpha);
    for (const auto& [name, shape, last] : tensors) {
      std::vector<float> data(static_cast<size_t>(shape.elements()), 0.5f);
      data.back() = last;
      writer.add_tensor(name, DType::kF32, shape, bytes_of_floats(data));
    }
    writer.write(gguf_);
  }
  const std::string a_ = "blk.0.attn_q.weight.lora_a", b_ = "blk.0.attn_q.weight.lora_b";
  const std::vector<std::tuple<std::string, Shape, float>> good_ = {{a_, {2, 6}, 1.0f}, {b_, {8, 2}, 1.0f}};
};

TEST_F(GgufRefusals, Metadata) {
  expect_gguf_refused({{"general.type", "model"}}, 1, good_, {"general.type", "\"model\""});
  expect_gguf_refused({{"adapter.type", "control_vector"}}, 1, good_, {"adapter.type", "control_vector"});
  expect_gguf_refused({{"general.architecture", "qwen3"}}, 1, good_, {"general.architecture", "qwen3", "llama"});
  expect_gguf_refused({}, -1, good_, {"adapter.lora.alpha"});
  expect_gguf_refused({}, std::numeric_limits<float>::infinity(), good_, {"adapter.lora.alpha", "inf"});
}

TEST_F(GgufRefusals, Tensors) {
  expect_gguf_refused({}, 1, {good_[0]}, {a_, ".lora_b"});
  expect_gguf_refused({}, 1, {good_[1]}, {b_, ".lora_a"});
  expect_gguf_refused({}, 1, {good_[0], {b_, {8, 3}, 0.0f}}, {a_, b_, "[8, 3]"});
  expect_gguf_refused({}, 1, {good_[0], {b_, {7, 2}, 0.0f}}, {"layers.0.q", "7 rows", "expected 8"});
  expect_gguf_refused({}, 1, {good_[0], {b_, {8, 2}, NAN}}, {b_, "nan"});
  expect_gguf_refused({}, 1, {{"token_embd.weight.lora_a", {2, 6}, 0.0f}}, {"token_embd"});
  expect_gguf_refused({}, 1, {{"blk.0.attn_q.weight", {2, 6}, 0.0f}}, {"blk.0.attn_q.weight"});
  expect_gguf_refused({}, 1, {}, {"no factors"});
}

TEST_F(GgufRefusals, AlphaZeroMeansNoScaling) {
  write({}, 0, good_);
  EXPECT_EQ(lora(read_adapter(gguf_, base_).sites[0]).scale(), 1.0f);
}

TEST_F(AdapterFiles, OverwritesAndLeavesNothingElse) {
  for (int round = 0; round < 2; ++round) {
    write_adapter(AdapterFormat::kPeft, directory_, {some_pairs(), "", {}}, base_);
    write_adapter(AdapterFormat::kGguf, gguf_, {some_pairs(), "", {}}, base_);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 3);
}

}  // namespace
}  // namespace patina
