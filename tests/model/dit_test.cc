// The diffusion transformer against diffusers and PyTorch (goldens/, made by tools/make_dit_goldens.py), and its files.
#include "model/dit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "graph/executor.h"
#include "support/compare.h"
#include "support/flow_songs.h"
#include "support/temp_dir.h"
#include "support/tiny_dit.h"

namespace patina::testing {
namespace {

using Form = TinyDit::Form;
constexpr Form kForms[] = {Form::kOriginal, Form::kDiffusers, Form::kGguf, Form::kSharded};

std::vector<float> golden(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor* tensor = file.find(name);
  PATINA_CHECK(tensor != nullptr, "no {}", name);
  std::vector<float> values(static_cast<size_t>(tensor->shape.elements()));
  std::memcpy(values.data(), tensor->data, static_cast<size_t>(tensor->bytes));
  return values;
}

// max |got - expected| <= tolerance * max |expected|.
::testing::AssertionResult near(std::span<const float> got, std::span<const float> expected, double tolerance) {
  if (got.size() != expected.size())
    return ::testing::AssertionFailure() << got.size() << " numbers, expected " << expected.size();
  double most = 0;
  for (const float value : expected) most = std::max(most, std::abs(static_cast<double>(value)));
  const Comparison result = compare(std::vector<double>(got.begin(), got.end()),
                                    std::vector<double>(expected.begin(), expected.end()), {tolerance * most, 0});
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.str();
}

struct Golden {
  const char* name;
  TinyDit model;
  std::vector<SongShape> songs;
};

std::vector<Golden> goldens() {
  TinyDit odd;
  odd.layers = 4;
  odd.width = 48;
  odd.feed_forward = 80;
  odd.heads = 6;
  odd.head_width = 16;
  odd.context_channels = 12;
  odd.latent_channels = 8;
  odd.encoder_width = 40;
  odd.window = 2;
  odd.rope_base = 1e4;
  odd.norm_eps = 1e-5;
  std::vector<Golden> all(2);
  all[0] = {"even", TinyDit(), {{22, 5, 0.375, 0.375}, {16, 9, 0.875, 0.875}}};
  all[1] = {"odd", odd, {{15, 7, 0.8125, 0.25}, {9, 3, 0.0625, 0.0625}}};
  return all;
}

SafetensorsFile open_golden(const char* name) {
  return SafetensorsFile::open(fmt::format("{}/tests/model/goldens/dit_{}.safetensors", PATINA_SOURCE_DIR, name));
}

class DitForms : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(All, DitForms, ::testing::ValuesIn(kForms));

TEST_P(DitForms, VelocityAndHiddenStatesAreThoseOfDiffusers) {
  for (const Golden& golden_case : goldens()) {
    const TempDir directory;
    TinyDit tiny = golden_case.model;
    tiny.form = GetParam();
    const DitModel model = DitModel::load(write_tiny_dit(directory.path() / "model.safetensors", tiny));
    const SafetensorsFile expected = open_golden(golden_case.name);
    FlowSongs songs(model.config(), golden_case.songs);
    const auto flow = build_flow_graph(model, nullptr, songs.limits(), std::nullopt);
    ThreadPool pool(2);
    Executor executor(flow->graph, cpu_backend(), pool);
    songs.bind(executor, *flow);
    std::map<std::string, std::vector<float>> hidden;
    executor.run(songs.sizes(), [&](const Executor::Finished& finished) {
      if (!finished.node.label.ends_with("mlp_gate")) return;
      const Tensor& out = finished.outputs[0];
      hidden[finished.node.label].assign(out.f32(), out.f32() + out.shape.elements());
    });
    for (size_t s = 0; s < golden_case.songs.size(); ++s) {
      EXPECT_TRUE(near(songs.velocity(executor.tensor(flow->velocity), s),
                       golden(expected, fmt::format("{}.velocity", s)), 1e-5))
          << golden_case.name << " song " << s;
      for (int i = 0; i < model.config().layers; ++i)
        EXPECT_TRUE(near(songs.rows(hidden.at(fmt::format("layers.{}.mlp_gate", i)), s),
                         golden(expected, fmt::format("{}.hidden.{}", s, i)), 1e-5))
            << golden_case.name << " song " << s << " layer " << i;
    }
  }
}

TEST(Dit, LoraGradientsAreThoseOfAutograd) {
  for (const Golden& golden_case : goldens())
    for (const int segments : {1, 2, 4}) {
      const TempDir directory;
      const DitModel model = DitModel::load(write_tiny_dit(directory.path() / "model.safetensors", golden_case.model));
      Adapter adapter(model.sites(), {.rank = 2, .alpha = 3.0f});
      ParameterStore& store = adapter.parameters();
      for (size_t i = 0; i < store.slices().size(); ++i) {
        const ParameterStore::Slice& slice = store.slices()[i];
        const bool a = slice.name.ends_with("lora_a");
        const std::vector<float> values = named_floats(slice.name, slice.shape.elements(),
                                                       a ? std::sqrt(1.0 / static_cast<double>(slice.shape[1])) : 0.3);
        std::copy(values.begin(), values.end(), store.value(i));
      }
      const SafetensorsFile expected = open_golden(golden_case.name);
      FlowSongs songs(model.config(), golden_case.songs);
      const auto flow = build_flow_graph(model, &adapter, songs.limits(), GradientOptions{.segments = segments});
      ThreadPool pool(2);
      Executor executor(flow->graph, cpu_backend(), pool);
      songs.bind(executor, *flow);
      float seed = 1.0f;
      executor.bind(flow->gradients.seed, &seed);
      executor.run(songs.sizes());
      const float loss = executor.tensor(flow->loss).f32()[0];
      EXPECT_TRUE(near(std::span(&loss, 1), golden(expected, "loss"), 1e-6)) << golden_case.name;
      for (size_t i = 0; i < store.slices().size(); ++i) {
        const ParameterStore::Slice& slice = store.slices()[i];
        EXPECT_TRUE(
            near({store.gradient(i), static_cast<size_t>(slice.shape.elements())}, golden(expected, slice.name), 1e-4))
            << golden_case.name << " " << slice.name;
      }
    }
}

TEST(Dit, FingerprintAndSitesAreTheSameInEveryForm) {
  const TempDir directory;
  std::set<std::string> fingerprints;
  for (const Form form : kForms) {
    TinyDit tiny;
    tiny.form = form;
    const DitModel model =
        DitModel::load(write_tiny_dit(directory.path() / fmt::format("{}.safetensors", static_cast<int>(form)), tiny));
    fingerprints.insert(model.fingerprint());
    EXPECT_EQ(model.null_conditioning().size(), 24u);
    EXPECT_EQ(model.config().windowed, (std::vector<bool>{true, false}));
    ASSERT_EQ(model.sites().size(), 22u);
    EXPECT_EQ(model.sites()[15].name, "cross.q");
    EXPECT_EQ(model.sites()[21].in, 48);
  }
  EXPECT_EQ(fingerprints.size(), 1u);
  TinyDit turned;
  turned.rope_base = 1e4;
  fingerprints.insert(DitModel::load(write_tiny_dit(directory.path() / "turned.safetensors", turned)).fingerprint());
  EXPECT_EQ(fingerprints.size(), 2u) << "the same weights, used otherwise";
}

TEST(Dit, MissingAndForeignTensorsAreListed) {
  const TempDir directory;
  const auto complaint = [&](const TinyDit& tiny) -> std::string {
    try {
      DitModel::load(write_tiny_dit(directory.path() / "model.safetensors", tiny));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto edited = [](std::function<bool(std::string&, Shape&)> edit) {
    TinyDit tiny;
    tiny.edit = std::move(edit);
    return tiny;
  };
  EXPECT_EQ(complaint({}), "");
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "decoder.layers.1.cross_attn.k_norm.weight is missing",
      complaint(edited([](std::string& name, Shape&) { return name != "decoder.layers.1.cross_attn.k_norm.weight"; })));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "has shape [32], expected [48, 32]",
                      complaint(edited([](std::string& name, Shape& shape) {
                        if (name == "decoder.layers.1.mlp.up_proj.weight") shape = {32};
                        return true;
                      })));
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "num_hidden_layers of config.json is 2, but the tensors have 1",
      complaint(edited([](std::string& name, Shape&) { return name.find("layers.1.") == std::string::npos; })));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "holds no tensor of the ACE-Step diffusion transformer",
                      complaint(edited([](std::string& name, Shape&) { return name == "null_condition_emb"; })));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "biases of attention and MLP are not supported",
                      complaint(edited([](std::string& name, Shape&) {
                        if (name == "null_condition_emb") name = "decoder.layers.0.self_attn.q_proj.bias";
                        return true;
                      })));
}

TEST(Dit, CanonicalNames) {
  EXPECT_EQ(canonical_dit_tensor("layers.3.cross_attn.to_out.0.weight"), "decoder.layers.3.cross_attn.o_proj.weight");
  EXPECT_EQ(canonical_dit_tensor("decoder.proj_in.weight"), "decoder.proj_in.1.weight");
  EXPECT_EQ(canonical_dit_tensor("proj_out_conv.bias"), "decoder.proj_out.1.bias");
  EXPECT_EQ(canonical_dit_tensor("decoder.proj_out.1.bias"), "decoder.proj_out.1.bias");
  EXPECT_EQ(canonical_dit_tensor("encoder.layers.0.self_attn.q_proj.weight"), std::nullopt);
}

}  // namespace
}  // namespace patina::testing
