// Files of LyCORIS, kohya and MLX put together by hand: what our own writers never write.
#include <gtest/gtest.h>

#include "adapter/files.h"
#include "adapter/matrix.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

using namespace patina::testing;

class ForeignAdapters : public ::testing::Test {
 protected:
  void add(const std::string& name, const Shape& shape, std::vector<float> values = {}) {
    if (values.empty()) values = numbers(shape.elements(), static_cast<uint32_t>(name.size()));
    writer_.add(name, DType::kF32, shape, std::as_bytes(std::span(values)));
  }
  AdapterFile read(const char* file = "x.safetensors") {
    writer_.write(directory_.path() / file);
    return read_adapter(directory_.path() / file, base_);
  }
  void expect_refused(const std::vector<std::string>& parts, const char* file = "x.safetensors") {
    try {
      read(file);
      ADD_FAILURE() << "no error; expected " << parts[0];
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), Error::Kind::kModel) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
    }
    writer_ = {};
  }

  TempDir directory_;
  SafetensorsWriter writer_;
  AdapterBase base_ = {"base", "llama", 12, nullptr};
};

TEST_F(ForeignAdapters, PrefixesAndAlphas) {
  int layer = 0;
  for (const char* prefix :
       {"lora_unet_model_layers_", "lora_te_model_layers_", "lora_te1_model_layers_", "lycoris_layers_"}) {
    const std::string key = fmt::format("{}{}_self_attn_q_proj", prefix, ++layer);
    add(key + ".lora_down.weight", {4, 6});
    add(key + ".lora_up.weight", {8, 4});
    if (layer > 1) add(key + ".alpha", layer == 2 ? Shape{1} : Shape{}, {layer == 3 ? 0.0f : 6.0f});
  }
  const std::vector<AdaptedSite> sites = read().sites;
  ASSERT_EQ(sites.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sites[i].layer, static_cast<int>(i) + 1);
    EXPECT_EQ(std::get<LoraFactors>(sites[i].factors).scale(), i == 1 || i == 3 ? 1.5f : 1.0f) << i;
  }
}

TEST_F(ForeignAdapters, LycorisRefusals) {
  const std::string q = "lycoris_model_layers_0_self_attn_q_proj", down = q + ".lora_down.weight",
                    up = q + ".lora_up.weight";
  add(down, {4, 6});
  expect_refused({down, ".lora_up.weight"});
  add(q + ".alpha", {}, {1.0f});
  expect_refused({q, "alone"});
  add(down, {4, 6}), add(up, {8, 4}), add(q + ".lora_mid.weight", {4, 4});
  expect_refused({"lora_mid"});
  add(down, {4, 6}), add(up, {8, 4}), add(q + ".dora_scale", {1, 6});
  expect_refused({"dora_scale", "[1, 6]", "[8]", "merge"});
  add(down, {4, 6}), add(up, {8, 4}), add(q + ".lokr_w1", {2, 2});
  expect_refused({"lokr_w1", "does not belong"});
  add(q + ".lokr_w1", {2, 2}), add(q + ".lokr_w2_a", {4, 2});
  expect_refused({"lokr_w2_b"});
  add(q + ".lokr_w1_a", {2, 3}), add(q + ".lokr_w1_b", {3, 2}), add(q + ".lokr_w2_a", {4, 2}),
      add(q + ".lokr_w2_b", {2, 3});
  expect_refused({"dims 3 and 2"});
  add("lycoris_model_layers_12_self_attn_q_proj.lora_up.weight", {8, 4});  // one layer more than the model has
  add("lora_unet_down_blocks_0_attn1_to_q.lora_up.weight", {8, 4});
  expect_refused({"layers_12_self_attn", "down_blocks_0", "; "});
}

TEST_F(ForeignAdapters, Mlx) {
  const std::vector<float> a = numbers(12, 1), b = numbers(16, 2);  // [in, rank], [rank, out]
  add("model.layers.3.self_attn.q_proj.lora_a", {6, 2}, a);
  add("model.layers.3.self_attn.q_proj.lora_b", {2, 8}, b);
  write_file(directory_.path() / "adapter_config.json",
             R"({"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}})");
  const AdapterFile adapter = read("adapters.safetensors");
  EXPECT_EQ(adapter.format, "mlx");
  ASSERT_EQ(adapter.sites.size(), 1u);
  const Matrix transposed = product(matrix(6, 2, a), matrix(2, 8, b));
  const Matrix expected = build(8, 6, [&](int64_t r, int64_t c) { return 20.0 * transposed.at(c, r); });
  EXPECT_TRUE(distance(delta_of(adapter.sites[0]), expected) <= 1e-6);
  EXPECT_EQ(read_adapter(directory_.path(), base_).sites.size(), 1u);

  for (const char* config : {"{", "[]", "{}", R"({"lora_parameters": {"scale": "2"}})"}) {
    write_file(directory_.path() / "adapter_config.json", config);
    expect_refused({"adapter_config.json"}, "adapters.safetensors");
  }
}

}  // namespace
}  // namespace patina
