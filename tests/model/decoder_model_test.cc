#include "model/decoder_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "formats/names.h"
#include "graph/reference_executor.h"
#include "model/decoder_lm.h"
#include "support/tiny_lm.h"

namespace patina::testing {
namespace {

// What loading says, or "accepted".
std::string refusal(const TinyModel& options) {
  try {
    const TinyLm lm(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kModel);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(text.find("model.gguf"), std::string::npos) << text;
    return text;
  }
  return "accepted";
}

#define EXPECT_REFUSED(options, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, refusal(options))

TinyModel without(const char* left_out) {
  TinyModel options;
  options.edit = [left_out](std::string_view name, DType&, Shape&) { return name != left_out; };
  return options;
}

TinyModel with_shape(const char* changed, Shape to) {
  TinyModel options;
  options.edit = [changed, to](std::string_view name, DType&, Shape& shape) {
    if (name == changed) shape = to;
    return true;
  };
  return options;
}

TinyModel with_type(const char* changed, DType to) {
  TinyModel options;
  options.edit = [changed, to](std::string_view name, DType& dtype, Shape&) {
    if (name == changed) dtype = to;
    return true;
  };
  return options;
}

template <typename T>
TinyModel with_key(const char* key, T value) {
  TinyModel options;
  options.add = [key, value](GgufWriter& file) { file.set(key, value); };
  return options;
}

TinyModel with_tensor(const char* tensor, std::vector<float> numbers) {
  TinyModel options;
  options.add = [tensor, numbers](GgufWriter& file) {
    file.add_tensor(tensor, DType::kF32, Shape{static_cast<int64_t>(numbers.size())},
                    std::as_bytes(std::span(numbers)));
  };
  return options;
}

TEST(DecoderModel, ReadsTheConfiguration) {
  const TinyLm lm;
  const DecoderConfig& config = lm.model.config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.width, 256);
  EXPECT_EQ(config.feed_forward, 512);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_width, 32);
  EXPECT_EQ(config.vocabulary, 260);
  EXPECT_EQ(config.context_tokens, 512);
  EXPECT_EQ(lm.model.sites().size(), 14u) << "a tied head is no site";
}

TEST(DecoderModel, MissingTensorsAreNamed) {
  EXPECT_EQ(refusal({}), "accepted");
  for (const char* name : {"blk.1.ffn_down.weight", "blk.0.attn_q.weight", "blk.1.ffn_norm.weight",
                           "output_norm.weight", "token_embd.weight"})
    EXPECT_REFUSED(without(name), std::string(name));
}

TEST(DecoderModel, WrongShapesAreNamedWithBothShapes) {
  EXPECT_REFUSED(with_shape("blk.1.attn_k.weight", {128, 256}), "blk.1.attn_k.weight has shape [128, 256]");
  EXPECT_REFUSED(with_shape("blk.1.attn_k.weight", {128, 256}), "expected [64, 256]");
  EXPECT_REFUSED(with_shape("blk.0.ffn_down.weight", {512, 256}), "blk.0.ffn_down.weight");
  EXPECT_REFUSED(with_shape("blk.0.attn_norm.weight", {255}), "blk.0.attn_norm.weight");
  EXPECT_REFUSED(with_shape("token_embd.weight", {260, 512}), "token_embd.weight");
}

TEST(DecoderModel, WhatIsNotSupportedIsNamed) {
  TinyModel gizmo;
  gizmo.architecture = "gizmo";
  EXPECT_REFUSED(gizmo, "architecture \"gizmo\" is not supported (supported: llama)");
  EXPECT_REFUSED(with_type("blk.0.ffn_up.weight", DType::kI32), "blk.0.ffn_up.weight has type I32");
  EXPECT_REFUSED(with_type("token_embd.weight", DType::kI32), "token_embd.weight has type I32");
  EXPECT_REFUSED(with_tensor("blk.0.attn_q.bias", std::vector<float>(256)), "blk.0.attn_q.bias: biases");
  EXPECT_REFUSED(with_key("llama.rope.scaling.type", "yarn"), "llama.rope.scaling.type is \"yarn\"");
  EXPECT_REFUSED(with_key("llama.rope.scaling.type", "linear"), "llama.rope.scaling.factor");
  EXPECT_REFUSED(with_key("llama.expert_count", uint32_t{8}), "llama.expert_count");
  EXPECT_REFUSED(with_key("llama.attention.sliding_window", uint32_t{64}), "llama.attention.sliding_window");
  EXPECT_REFUSED(with_key("llama.rope.dimension_count", uint32_t{16}), "llama.rope.dimension_count");
}

TEST(DecoderModel, ImpossibleNumbersAreRefused) {
  for (const float base : {0.0f, -1.0f, INFINITY, NAN})
    EXPECT_REFUSED(with_key("llama.rope.freq_base", base), "rope base");
  for (const float factor : {0.0f, -2.0f, INFINITY, NAN}) {
    TinyModel options;
    options.add = [factor](GgufWriter& file) {
      file.set("llama.rope.scaling.type", "linear");
      file.set("llama.rope.scaling.factor", factor);
    };
    EXPECT_REFUSED(options, "rope");
  }
  for (const float divisor : {0.0f, -1.0f, INFINITY, NAN})
    EXPECT_REFUSED(with_tensor("rope_freqs.weight", std::vector<float>(16, divisor)), "rope_freqs.weight");
  EXPECT_REFUSED(with_tensor("rope_freqs.weight", std::vector<float>(15, 1.0f)), "rope_freqs.weight");
  EXPECT_REFUSED(with_key("llama.attention.key_length", uint32_t{33}), "head width");
  EXPECT_REFUSED(with_key("llama.attention.key_length", uint32_t{64}), "attn_q.weight");
  TinyModel endless;
  endless.context = 0;
  EXPECT_REFUSED(endless, "context_length");
}

TEST(DecoderModel, AbsurdLayerCountsAreRefusedAsTheyStand) {
  const TempDir directory;
  const auto path = directory.path() / "model.gguf";
  write_tiny_model(path, {});
  std::string bytes = read_file(path);
  const std::string key = "llama.block_count";
  for (const uint32_t layers : {0u, 4096u, 3000000000u, 4294967295u}) {
    std::memcpy(bytes.data() + bytes.find(key) + key.size() + sizeof(uint32_t), &layers, sizeof layers);
    directory.write("model.gguf", bytes);
    try {
      DecoderModel::load(path);
      FAIL() << layers;
    } catch (const Error& error) {
      EXPECT_PRED_FORMAT2(::testing::IsSubstring, "block_count", std::string(error.what()));
      EXPECT_PRED_FORMAT2(::testing::IsSubstring, std::to_string(layers), std::string(error.what()));
    }
  }
}

TEST(DecoderModel, HeadsTiedAndUntied) {
  const TinyLm tied, untied({.tied_head = false});
  EXPECT_TRUE(tied.model.tied_head());
  EXPECT_EQ(tied.model.head().data, tied.model.embedding().data);
  EXPECT_FALSE(untied.model.tied_head());
  EXPECT_NE(untied.model.head().data, untied.model.embedding().data);
  EXPECT_EQ(untied.model.head().data, untied.model.file().find_tensor("output.weight")->data);
  const std::vector<Site> sites = untied.model.sites();
  ASSERT_EQ(sites.size(), 15u);
  EXPECT_EQ(sites.back().name, "lm_head");
  EXPECT_EQ(sites.back().layer, kNoLayer);
  EXPECT_EQ(sites.back().out, 260);
}

TEST(DecoderModel, NormsInOtherTypesAreDecoded) {
  TinyModel options;
  std::vector<uint16_t> halves(256);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3c00 + i);  // 1 + i / 1024
  options.edit = [](std::string_view name, DType&, Shape&) { return name != "output_norm.weight"; };
  options.add = [&](GgufWriter& file) {
    file.add_tensor("output_norm.weight", DType::kF16, Shape{256}, std::as_bytes(std::span(halves)));
  };
  const TinyLm lm(options);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(lm.model.output_norm().f32()[i], 1.0f + static_cast<float>(i) / 1024.0f);
}

// Row maps of q and k: in Hugging Face order feature j of a head turns with feature j + C/2, in the file with its
// neighbour.
TEST(DecoderModel, RowsOfQueriesAndKeysAreMapped) {
  const TinyLm lm;
  const DecoderLayer& layer = lm.model.layers()[1];
  for (const auto& [tensor, heads] : {std::pair{&layer.q, 8}, std::pair{&layer.k, 2}}) {
    ASSERT_NE(tensor->row_map, nullptr);
    for (int h = 0; h < heads; ++h)
      for (int j = 0; j < 16; ++j) {
        EXPECT_EQ(tensor->row_map[h * 32 + j], h * 32 + 2 * j);
        EXPECT_EQ(tensor->row_map[h * 32 + 16 + j], h * 32 + 2 * j + 1);
      }
  }
  EXPECT_EQ(layer.v.row_map, nullptr);
  EXPECT_EQ(layer.o.row_map, nullptr);
}

// Angle of feature pair i at position p, from the definition: p * s * base^(-2 i / C) / d_i.
void expect_table(const DecoderModel& model, double base, double scale, const std::vector<float>& divisors) {
  constexpr int kPositions = 300, kWidth = 32;
  const std::vector<float> table = rope_table(model.config().rope(), kPositions);
  ASSERT_EQ(table.size(), static_cast<size_t>(kPositions * kWidth));
  for (int p = 0; p < kPositions; ++p)
    for (int i = 0; i < kWidth / 2; ++i) {
      const double divisor = divisors.empty() ? 1.0 : static_cast<double>(divisors[static_cast<size_t>(i)]);
      const double angle = p * scale / (std::pow(base, i / 16.0) * divisor);
      EXPECT_TRUE(std::abs(static_cast<double>(table[static_cast<size_t>(p * kWidth + i)]) - std::cos(angle)) <= 1e-7)
          << p << " " << i;
      EXPECT_TRUE(std::abs(static_cast<double>(table[static_cast<size_t>(p * kWidth + 16 + i)]) - std::sin(angle)) <=
                  1e-7)
          << p << " " << i;
    }
}

TEST(DecoderModel, RopeUnscaled) {
  expect_table(TinyLm().model, 10000, 1, {});
  expect_table(TinyLm(with_key("llama.rope.freq_base", 500000.0f)).model, 500000, 1, {});
  expect_table(TinyLm(with_key("llama.rope.scaling.type", "none")).model, 10000, 1, {});
}

TEST(DecoderModel, RopeScaledLinearly) {
  TinyModel options;
  options.add = [](GgufWriter& file) {
    file.set("llama.rope.scaling.type", "linear");
    file.set("llama.rope.scaling.factor", 4.0f);
  };
  expect_table(TinyLm(options).model, 10000, 0.25, {});
  // A factor without a type is linear; files from before the type existed have their own key.
  expect_table(TinyLm(with_key("llama.rope.scaling.factor", 8.0f)).model, 10000, 0.125, {});
  expect_table(TinyLm(with_key("llama.rope.scale_linear", 2.0f)).model, 10000, 0.5, {});
}

// Factors as Llama 3.1 defines them: frequencies of long waves are divided by 8, of short ones kept, between them
// blended.
TEST(DecoderModel, RopeScaledAsLlama3) {
  std::vector<float> divisors;
  for (int i = 0; i < 16; ++i) {
    const double wave = 2 * M_PI * std::pow(500000.0, i / 16.0), low = 8192.0 / 1, high = 8192.0 / 4;
    if (wave < high)
      divisors.push_back(1.0f);
    else if (wave > low)
      divisors.push_back(8.0f);
    else
      divisors.push_back(static_cast<float>(1 / ((1 - (8192 / wave - 1) / 3) / 8 + (8192 / wave - 1) / 3)));
  }
  TinyModel options;
  options.add = [&](GgufWriter& file) {
    file.set("llama.rope.freq_base", 500000.0f);
    file.add_tensor("rope_freqs.weight", DType::kF32, Shape{16}, std::as_bytes(std::span(divisors)));
  };
  expect_table(TinyLm(options).model, 500000, 1, divisors);
}

// The same numbers in another type cost only rounding: an embedding and head in any type works like one in F32.
TEST(DecoderModel, EmbeddingAndHeadInAnyType) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ2_K, DType::kQ3_K,
                            DType::kQ4_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    const TinyLm lm(with_type("token_embd.weight", dtype));
    EXPECT_EQ(lm.model.embedding().dtype, dtype);
    EXPECT_EQ(lm.model.layers()[0].q.dtype, DType::kF32);
    auto graph = build_loss_graph(lm.model, nullptr, {3, 1, 3}, std::nullopt);
    ReferenceExecutor<double> reference(graph->graph);
    std::vector<int32_t> tokens = {7, 100, 259}, positions = {0, 1, 2}, offsets = {0, 3}, first = {0}, rows = {0, 1, 2},
                         labels = {100, 259, 2};
    reference.bind(graph->tokens, tokens.data());
    reference.bind(graph->positions, positions.data());
    reference.bind(graph->offsets, offsets.data());
    reference.bind(graph->first, first.data());
    reference.bind(graph->supervised[0].rows, rows.data());
    reference.bind(graph->supervised[0].labels, labels.data());
    reference.run({3, 2, 1, 3});
    const double loss = reference.tensor(graph->loss).at(0) / 3;
    EXPECT_TRUE(loss > 0.3 * std::log(260.0) && loss < 3 * std::log(260.0)) << name(dtype) << " " << loss;
  }
}

}  // namespace
}  // namespace patina::testing
