// A merged model file against the adapter at run time.
#include "adapter/merge.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "infer/generator.h"
#include "support/adapter_kinds.h"
#include "support/tiny_run.h"

namespace patina {
namespace {

using namespace patina::testing;
namespace fs = std::filesystem;

std::vector<float> logits_of(const DecoderModel& model, Adapter* adapter) {
  ThreadPool pool(2);
  Generator generator(model, adapter, cpu_backend(), pool, 32);
  const std::vector<int32_t> tokens = {72, 101, 108, 108, 111, 44, 32, 116, 105, 100, 101};
  const std::span<const float> logits = generator.feed(tokens);
  return {logits.begin(), logits.end()};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = !(difference <= worst) ? difference : worst;
  }
  return worst;
}

class Merge : public ::testing::Test {
 protected:
  AdapterBase base(const DecoderModel& model) const {
    return {"base", "llama", model.config().layers,
            [&model](int, std::string_view site) { return model.row_map(site); }};
  }
  std::vector<MergedTensor> merge(const TinyLm& lm, std::span<const AdaptedSite> sites, const MergeOptions& options) {
    ThreadPool pool(2);
    return merge_adapter(lm.model.file(), sites, base(lm.model), options, out_, pool);
  }
  void expect_refused(const TinyLm& lm, std::span<const AdaptedSite> sites, const MergeOptions& options,
                      const std::string& part) {
    try {
      merge(lm, sites, options);
      ADD_FAILURE() << "no error; expected " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_TRUE(fs::is_empty(directory_.path()));
  }

  TempDir directory_;
  const fs::path out_ = directory_.path() / "merged.gguf";
};

TEST_F(Merge, LogitsAreThoseOfTheAdapter) {
  for (const auto& [stored, merged, tolerance] : {std::tuple{DType::kF32, DType::kF32, 1e-4},
                                                  {DType::kF16, DType::kF16, 1e-2},
                                                  {DType::kQ4_1, DType::kF16, 1e-2}}) {
    SCOPED_TRACE(name(stored));
    const TinyLm lm({.dtype = stored});
    const auto adapter = half_trained(layer_sites(lm.model, {"q", "k", "o", "down"}));
    const std::vector<MergedTensor> tensors = merge(lm, adapter->sites(), {});
    EXPECT_EQ(tensors.size(), 8u);
    for (const MergedTensor& tensor : tensors) {
      EXPECT_EQ(tensor.before, stored);
      EXPECT_EQ(tensor.after, merged);
      EXPECT_TRUE(tensor.retention.cosine() >= 0.999) << tensor.name << " " << tensor.retention.cosine();
      EXPECT_TRUE(std::abs(tensor.retention.energy() - 1.0) <= 0.01) << tensor.name;
    }
    const DecoderModel model = DecoderModel::load(out_);
    const std::vector<float> expected = logits_of(lm.model, adapter.get());
    EXPECT_TRUE(largest_difference(logits_of(model, nullptr), expected) <= tolerance);
    EXPECT_GT(largest_difference(logits_of(lm.model, nullptr), expected), 0.1) << "the adapter does something";
  }
}

TEST_F(Merge, FieldIssue22_EveryKindIsThatOfTheAdapterAndSaysWhatIsRetained) {
  const std::vector<Sequence> sequences = {random_sequence(40, 2, 0), random_sequence(9, 2, 1)};
  for (const auto& [stored, merged] : {std::pair{DType::kF16, DType::kF16},
                                       {DType::kBF16, DType::kBF16},
                                       {DType::kQ4_1, DType::kF16},
                                       {DType::kF16, DType::kQ8_0},
                                       {DType::kQ4_1, DType::kQ4_0}}) {
    const TinyLm lm({.dtype = stored});
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(fmt::format("{} {} -> {}", kind.name, name(stored), name(merged)));
      Adapter adapter(layer_sites(lm.model, {"q", "k", "o", "down"}), kind.options);
      train(lm.model, adapter, sequences, plain_options(10, 1e-2));
      const std::vector<MergedTensor> tensors = merge(lm, adapter.sites(), {.dtype = merged});
      ASSERT_EQ(tensors.size(), 8u);
      const bool coarse = merged == DType::kQ4_0, fine = merged == DType::kF16 || merged == DType::kBF16;
      for (const MergedTensor& tensor : tensors) {
        const double cosine = tensor.retention.cosine(), energy = tensor.retention.energy();
        EXPECT_EQ(tensor.after, merged);
        EXPECT_TRUE(cosine >= (coarse ? 0.9 : 0.999)) << tensor.name << " " << cosine;
        EXPECT_TRUE(coarse ? cosine <= 0.9999 : std::abs(energy - 1.0) <= 0.01) << tensor.name << " " << energy;
      }
      if (!fine) continue;
      const DecoderModel model = DecoderModel::load(out_);
      const std::vector<float> expected = logits_of(lm.model, &adapter);
      const double largest = largest_difference(expected, std::vector<float>(expected.size(), 0.0f));
      const double error = largest_difference(logits_of(model, nullptr), expected);
      EXPECT_TRUE(error <= 1e-2 * largest) << error << " of " << largest;
      EXPECT_GT(largest_difference(logits_of(lm.model, nullptr), expected), 0.1) << "the adapter does something";
    }
  }
}

TEST_F(Merge, AllElseStaysBitForBit) {
  const TinyLm lm({.dtype = DType::kQ4_1});
  merge(lm, half_trained(layer_sites(lm.model, {"v"}))->sites(), {});
  const GgufFile &before = lm.model.file(), after = GgufFile::open(out_);
  ASSERT_EQ(after.entries().size(), before.entries().size());
  for (size_t i = 0; i < before.entries().size(); ++i) {
    EXPECT_EQ(after.entries()[i].key, before.entries()[i].key);
    EXPECT_EQ(after.entries()[i].encoded, before.entries()[i].encoded) << before.entries()[i].key;
  }
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (size_t i = 0; i < before.tensors().size(); ++i) {
    const GgufTensor &a = before.tensors()[i], &b = after.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    const bool same = a.dtype == b.dtype && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes)) == 0;
    EXPECT_EQ(same, a.name.find("attn_v") == std::string::npos) << a.name;
  }
}

TEST_F(Merge, FourBitsSwallowMuch) {
  const TinyLm lm({.dtype = DType::kQ4_1});
  auto adapter = half_trained(layer_sites(lm.model, {"up"}));
  std::vector<AdaptedSite> sites = adapter->sites();
  for (AdaptedSite& site : sites)
    for (float& value : std::get<LoraFactors>(site.factors).b) value *= 0.01f;
  for (const MergedTensor& tensor : merge(lm, sites, {.dtype = DType::kQ4_1}))
    EXPECT_LT(tensor.retention.cosine(), 0.9) << tensor.name;
}

TEST_F(Merge, RefusesToWriteTheBaseAgain) {
  const TinyLm lm({.dtype = DType::kBF16});
  const std::vector<Site> all = layer_sites(lm.model, {"up"});
  expect_refused(lm, Adapter(all, AdapterOptions{}).sites(), {}, "changes nothing");
  std::vector<AdaptedSite> sites = half_trained(all)->sites();
  expect_refused(lm, sites, {.weight = 0.0}, "changes nothing");
  expect_refused(lm, sites, {.weight = 1e-9}, "equal to");
  expect_refused(lm, sites, {.weight = 1e50}, "finite");
}

TEST_F(Merge, Weight) {
  const TinyLm lm;
  const auto adapter = half_trained(layer_sites(lm.model, {"q"}));
  const double whole = merge(lm, adapter->sites(), {})[0].retention.wanted;
  EXPECT_NEAR(merge(lm, adapter->sites(), {.weight = -0.5})[0].retention.wanted, 0.25 * whole, 1e-9 * whole);
}

}  // namespace
}  // namespace patina
