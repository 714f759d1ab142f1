#include "adapter/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/philox.h"
#include "graph/differentiate.h"
#include "graph/reference_executor.h"
#include "ops/view.h"
#include "support/adapted.h"

namespace patina {
namespace {

using testing::lora;

std::vector<Site> sites_of(int layers) {
  std::vector<Site> sites;
  for (int layer = 0; layer < layers; ++layer) {
    sites.push_back({layer, "q", 6, 4});
    sites.push_back({layer, "down", 10, 6});
  }
  sites.push_back({-1, "lm_head", 6, 9});
  return sites;
}

std::vector<float> numbers(size_t count, uint32_t which) {
  const RandomStream stream(7, RandomUse::kTest, which);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

AdaptedSite pair_at(int layer, const std::string& site, int64_t in, int64_t out, int64_t rank, float alpha) {
  const auto seed = static_cast<uint32_t>(layer * 100 + site.size());
  return {layer, site, in, out,
          LoraFactors{rank,
                      alpha,
                      numbers(static_cast<size_t>(rank * in), seed),
                      numbers(static_cast<size_t>(out * rank), seed + 50),
                      {}}};
}

std::string error_of(const std::function<void()>& action, Error::Kind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

TEST(Parameters, SlicesAreAlignedAndApart) {
  ParameterStore store;
  const size_t a = store.add("a", {3, 5}), b = store.add("b", {16}), c = store.add("c", {1});
  store.allocate();
  EXPECT_EQ(store.slices()[a].offset, 0);
  EXPECT_EQ(store.slices()[b].offset, 16);
  EXPECT_EQ(store.slices()[c].offset, 32);
  EXPECT_EQ(store.values().size(), 48u);
  EXPECT_EQ(store.parameters(), 32);
  EXPECT_TRUE(store.gradients().empty());
  EXPECT_THROW(store.gradient(b), InternalError);
  store.allocate_gradients();
  EXPECT_EQ(store.gradient(b) - store.gradients().data(), 16);
  EXPECT_THROW(store.add("late", {1}), InternalError);
}

TEST(SelectSites, NamesAndTopLayers) {
  const std::vector<Site> all = sites_of(4);
  EXPECT_EQ(select_sites(all, {"q", "down"}, 0).size(), 8u);
  const std::vector<Site> top = select_sites(all, {"q", "lm_head"}, 2);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(site_label(top[0].layer, top[0].name), "layers.2.q");
  EXPECT_EQ(site_label(top[1].layer, top[1].name), "layers.3.q");
  EXPECT_EQ(site_label(top[2].layer, top[2].name), "lm_head");
  expect_contains(error_of([&] { select_sites(all, {"q"}, 5); }, Error::Kind::kUsage), "the model has 4");
  const std::string unknown = error_of([&] { select_sites(all, {"gate"}, 0); }, Error::Kind::kUsage);
  expect_contains(unknown, "\"gate\"");
  expect_contains(unknown, "down, lm_head, q");
}

TEST(Lora, FreshFactors) {
  const std::vector<Site> sites = {{0, "q", 400, 30}, {1, "q", 400, 30}, {1, "k", 400, 20}};
  const Adapter adapter(sites, {.rank = 64, .alpha = 32, .seed = 11});
  const std::vector<AdaptedSite> pairs = adapter.sites();
  ASSERT_EQ(pairs.size(), 3u);
  for (const AdaptedSite& pair : pairs) {
    double sum = 0, squares = 0;
    for (const float value : lora(pair).a) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double count = static_cast<double>(lora(pair).a.size());  // 25600: both bounds are over 4.5 standard errors
    EXPECT_LT(std::abs(sum / count), 0.05 / 30);
    EXPECT_TRUE(std::abs(std::sqrt(squares / count) * 20 - 1) < 0.02) << squares;
    for (const float value : lora(pair).b) EXPECT_EQ(value, 0.0f);
    EXPECT_EQ(lora(pair).scale(), 0.5f);
  }
  EXPECT_NE(lora(pairs[0]).a, lora(pairs[1]).a);
  EXPECT_NE(lora(pairs[1]).a, lora(pairs[2]).a);
  EXPECT_NE(lora(Adapter(sites, {.rank = 64, .alpha = 32, .seed = 12}).sites()[0]).a, lora(pairs[0]).a);
}

TEST(Lora, FactorsDependOnTheirOwnPlaceOnly) {
  const std::vector<Site> sites = sites_of(3);
  const std::vector<AdaptedSite> all = Adapter(sites, {.rank = 4, .alpha = 8, .seed = 5}).sites();
  const std::vector<Site> one = {sites[3]};  // layers.1.down
  const LoraFactors alone = lora(Adapter(one, {.rank = 8, .alpha = 8, .seed = 5}).sites()[0]);
  EXPECT_EQ(lora(all[3]).a, std::vector<float>(alone.a.begin(), alone.a.begin() + 4 * 10));
}

TEST(Lora, RefusesBadOptions) {
  const std::vector<Site> sites = sites_of(1);
  expect_contains(error_of([&] { Adapter(sites, {.rank = 0, .alpha = 1, .seed = 0}); }, Error::Kind::kUsage), "rank 0");
  expect_contains(error_of([&] { Adapter(sites, {.rank = 4, .alpha = NAN, .seed = 0}); }, Error::Kind::kUsage),
                  "alpha nan");
  expect_contains(error_of([&] { Adapter({}, {.rank = 4, .alpha = 4, .seed = 0}); }, Error::Kind::kUsage), "no layer");
}

TEST(Lora, FromPairsAndBack) {
  const std::vector<Site> sites = sites_of(2);
  const std::vector<AdaptedSite> pairs = {pair_at(1, "down", 10, 6, 3, 5), pair_at(0, "q", 6, 4, 2, 1)};
  const std::vector<AdaptedSite> back = Adapter(sites, pairs, "x.gguf").sites();
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].site, "q");  // the model's order
  EXPECT_EQ(lora(back[0]).a, lora(pairs[1]).a);
  EXPECT_EQ(lora(back[0]).b, lora(pairs[1]).b);
  EXPECT_EQ(lora(back[1]).a, lora(pairs[0]).a);
  EXPECT_EQ(lora(back[1]).b, lora(pairs[0]).b);
  EXPECT_EQ(lora(back[1]).rank, 3);
  EXPECT_EQ(lora(back[1]).alpha, 5);
}

TEST(Lora, RefusesAnotherModelsPairs) {
  const std::vector<Site> sites = sites_of(2);
  const auto refusal = [&](const std::vector<AdaptedSite>& pairs) {
    return error_of([&] { Adapter(sites, pairs, "dir/x.gguf"); }, Error::Kind::kModel);
  };
  std::vector<AdaptedSite> deeper;
  for (int layer = 0; layer < 9; ++layer) deeper.push_back(pair_at(layer, "q", 6, 4, 2, 1));
  const std::string unknown = refusal(deeper);
  expect_contains(unknown, "dir/x.gguf");
  expect_contains(unknown, "layers.2.q is not in the model");
  expect_contains(unknown, "and 3 more");
  expect_contains(refusal({pair_at(1, "q", 8, 4, 2, 1)}),
                  "layers.1.q adapts a weight [4, 8] where the model has [4, 6]");
  expect_contains(refusal({pair_at(1, "q", 6, 5, 2, 1)}), "[5, 6]");
  expect_contains(refusal({pair_at(1, "q", 6, 4, 2, 1), pair_at(1, "q", 6, 4, 2, 1)}),
                  "layers.1.q is there more than once");
  expect_contains(refusal({}), "no adapted layer");
}

// y = W x + (alpha / R) B A x + acc and the gradients of both factors, against plain loops; alpha is not the rank.
TEST(Lora, ValueAndGradients) {
  const int64_t in = 6, out = 4, rank = 3;
  const float alpha = 5;
  const std::vector<Site> sites = {{0, "q", in, out}};
  const std::vector<AdaptedSite> pairs = {pair_at(0, "q", in, out, rank, alpha)};
  Adapter adapter(sites, pairs, "x");
  std::vector<float> w = numbers(static_cast<size_t>(out * in), 1), x = numbers(static_cast<size_t>(in), 2);
  std::vector<float> acc = numbers(static_cast<size_t>(out), 3), dy = numbers(static_cast<size_t>(out), 4);

  // The adapter serves a second graph as well; the first must not notice.
  Graph graph, other;
  for (Graph* g : {&graph, &other}) {
    const ValueId weight = g->frozen("w", dense(w.data(), DType::kF32, {out, in}));
    const ValueId input = g->input("x", DType::kF32, {1, in}), sum = g->input("acc", DType::kF32, {1, out});
    const ValueId weights = g->frozen("dy", dense(dy.data(), DType::kF32, {1, out}));
    const ValueId y = linear(*g, &adapter, input, weight, sum, 0, "q", {});
    EXPECT_EQ(g->value(y).name, "layers.0.q.lora_b.matmul");
    // loss = dy . y
    const ValueId loss = reshape(*g, linear(*g, &adapter, y, weights, kNoValue, 1, "q", {}), {1}, "loss");
    const std::map<ValueId, ValueId> states = adapter.gradients(*g);
    ASSERT_EQ(states.size(), 2u);
    if (g == &other) continue;

    const Differentiation result = differentiate(*g, loss, states);
    ReferenceExecutor<double> executor(*g);
    const float seed = 1;
    executor.bind(input, x.data());
    executor.bind(sum, acc.data());
    executor.bind(result.seed, &seed);
    executor.run({});

    const std::vector<float>&a = lora(pairs[0]).a, &b = lora(pairs[0]).b;
    const double scale = 5.0 / 3.0;
    const auto at = [](const std::vector<float>& values, int64_t i) -> double {
      return values[static_cast<size_t>(i)];
    };
    std::vector<double> u(static_cast<size_t>(rank)), du(static_cast<size_t>(rank));
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t i = 0; i < in; ++i) u[static_cast<size_t>(r)] += at(a, r * in + i) * at(x, i);
      for (int64_t o = 0; o < out; ++o) du[static_cast<size_t>(r)] += scale * at(b, o * rank + r) * at(dy, o);
    }
    constexpr double kTolerance = 1e-6;  // the scale is rounded to F32
    for (int64_t o = 0; o < out; ++o) {
      double expected = at(acc, o);
      for (int64_t i = 0; i < in; ++i) expected += at(w, o * in + i) * at(x, i);
      for (int64_t r = 0; r < rank; ++r) expected += scale * at(b, o * rank + r) * u[static_cast<size_t>(r)];
      EXPECT_TRUE(std::abs(executor.tensor(y).at(0, o) - expected) <= kTolerance);
    }
    for (const auto& [trainable, gradient] : result.gradient) {
      const bool is_a = graph.value(trainable).name == "layers.0.q.lora_a";
      ASSERT_TRUE(is_a || graph.value(trainable).name == "layers.0.q.lora_b");
      // It is summed in place into the store's own slice.
      EXPECT_EQ(graph.value(states.at(trainable)).data, adapter.parameters().gradient(is_a ? 0 : 1));
      const RefTensor<double> got = executor.tensor(gradient);
      for (int64_t i = 0; i < got.rows(); ++i)
        for (int64_t j = 0; j < got.columns(); ++j) {
          const double expected =
              is_a ? du[static_cast<size_t>(i)] * at(x, j) : scale * at(dy, i) * u[static_cast<size_t>(j)];
          EXPECT_TRUE(std::abs(got.at(i, j) - expected) <= kTolerance) << is_a << " " << i << " " << j;
        }
    }
  }
}

TEST(Lora, LayersWithoutPairAndModelsWithoutAdapterAreFrozenProducts) {
  std::vector<float> w(24);
  const std::vector<Site> sites = {{0, "q", 6, 4}};
  Adapter adapter(sites, {.rank = 2, .alpha = 2, .seed = 1});
  Graph with, without;
  for (Graph* g : {&with, &without}) {
    const ValueId weight = g->frozen("w", dense(w.data(), DType::kF32, {4, 6}));
    const ValueId x = g->input("x", DType::kF32, {2, 6});
    linear(*g, g == &with ? &adapter : nullptr, x, weight, kNoValue, 1, "q", {.few_rows = true});
  }
  EXPECT_EQ(with.nodes().size(), 1u);
  EXPECT_EQ(with.print(), without.print());
  EXPECT_TRUE(adapter.gradients(with).empty());
}

TEST(Lora, OneGraphUsesAFactorOnce) {
  std::vector<float> w(24);
  const std::vector<Site> sites = {{0, "q", 6, 4}};
  Adapter adapter(sites, {.rank = 2, .alpha = 2, .seed = 1});
  Graph graph;
  const ValueId weight = graph.frozen("w", dense(w.data(), DType::kF32, {4, 6}));
  const ValueId x = graph.input("x", DType::kF32, {2, 6});
  linear(graph, &adapter, x, weight, kNoValue, 0, "q", {});
  linear(graph, &adapter, x, weight, kNoValue, 0, "q", {});
  EXPECT_EQ(adapter.gradients(graph).size(), 2u);
}

}  // namespace
}  // namespace patina
