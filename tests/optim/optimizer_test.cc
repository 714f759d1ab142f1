// Whole optimizers against other implementations: goldens of tools/make_optimizer_goldens.py.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "optim/muon.h"

namespace patina {
namespace {

using Json = nlohmann::json;

// In [-1, 1), exact in F32. The same hash is in the script.
float number(uint32_t parameter, uint32_t step, uint32_t index) {
  uint32_t x = index * 2654435761u + step * (40503u * 65537u) + parameter * 97u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return static_cast<float>(x >> 20) / 2048.0f - 1.0f;
}

// Parameters as the goldens name them, and the gradients of a step.
struct Store {
  explicit Store(const Json& described) : parameters(described) {
    for (const Json& parameter : parameters)
      store.add(parameter.at("name"), Shape{parameter.at("shape").at(0), parameter.at("shape").at(1)});
    store.allocate();
    store.allocate_gradients();
    fill(store.values(), 0, false);
  }
  void fill(std::span<float> to, uint32_t step, bool scaled) const {
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      const float scale = scaled ? parameters[p].at("gradientScale").get<float>() : 1.0f;
      const ParameterStore::Slice& slice = store.slices()[p];
      for (int64_t i = 0; i < slice.shape.elements(); ++i)
        to[static_cast<size_t>(slice.offset + i)] = scale * number(p, step, static_cast<uint32_t>(i));
    }
  }
  void run(Optimizer& optimizer, uint32_t from, uint32_t to, double rate, int threads) {
    ThreadPool pool(threads);
    for (uint32_t step = from; step <= to; ++step) {
      fill(store.gradients(), step, true);
      optimizer.step(store.values(), store.gradients(), rate, pool);
    }
  }

  Json parameters;
  ParameterStore store;
};

Json golden() { return Json::parse(read_file(PATINA_SOURCE_DIR "/tests/optim/goldens/optimizers.json")); }

OptimizerOptions options_of(const Json& golden, OptimizerKind kind) {
  return {.kind = kind,
          .weight_decay = golden.at("decay"),
          .muon_scale = golden.at("muonScale"),
          .lora_plus_ratio = golden.at("loraPlus")};
}

class Goldens : public ::testing::TestWithParam<std::pair<const char*, OptimizerKind>> {};

TEST_P(Goldens, StepsAgree) {
  const Json file = golden();
  const auto& [which, kind] = GetParam();
  Store place(file.at("parameters"));
  const auto optimizer = make_optimizer(place.store, options_of(file, kind));
  place.run(*optimizer, 1, file.at("steps"), file.at("rate"), 2);
  for (size_t p = 0; p < place.parameters.size(); ++p) {
    const ParameterStore::Slice& slice = place.store.slices()[p];
    const std::vector<double> expected = file.at(which).at(slice.name);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), slice.shape.elements());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(std::abs(place.store.value(p)[i] - expected[i]) <= 1e-6 * std::max(1.0, std::abs(expected[i])))
          << which << " " << slice.name << "[" << i << "] " << place.store.value(p)[i] << " for " << expected[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Goldens,
                         ::testing::Values(std::pair{"adamw", OptimizerKind::kAdamW},
                                           std::pair{"muon", OptimizerKind::kMuon}),
                         [](const auto& tested) { return std::string(tested.param.first); });

TEST_P(Goldens, GoOnToTheBitFromTheirState) {
  const Json file = golden();
  const OptimizerOptions options = options_of(file, GetParam().second);
  Store straight(file.at("parameters")), stopped(file.at("parameters"));
  const auto whole = make_optimizer(straight.store, options), first = make_optimizer(stopped.store, options),
             second = make_optimizer(stopped.store, options);
  straight.run(*whole, 1, 6, 1e-2, 3);
  stopped.run(*first, 1, 4, 1e-2, 1);
  const auto from = first->state(), to = second->state();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) std::ranges::copy(from[i].values, to[i].values.begin());
  second->set_steps(first->steps());
  stopped.run(*second, 5, 6, 1e-2, 2);
  EXPECT_TRUE(std::ranges::equal(straight.store.values(), stopped.store.values()));
}

TEST(Optimizers, MuonTakesWideMatricesAndHalfTheMoments) {
  const Json file = golden();
  const Store place(file.at("parameters"));
  const ParameterSplit split = split_parameters(place.store, options_of(file, OptimizerKind::kMuon));
  EXPECT_EQ(split.matrices.size(), 3u);
  ASSERT_EQ(split.ranges.size(), 1u) << "a short side of 8 stays with AdamW";
  EXPECT_EQ(split.matrix_parameters, 16 * 40 + 48 * 16 + 20 * 20);
  for (const OptimizerKind kind : {OptimizerKind::kMuon, OptimizerKind::kAdamW}) {
    int64_t bytes = 0;
    for (const Optimizer::State& state : make_optimizer(place.store, options_of(file, kind))->state())
      bytes += static_cast<int64_t>(state.values.size_bytes());
    const int64_t matrices = 16 * 40 + 48 * 16 + 20 * 20, rest = 24 * 8;
    EXPECT_EQ(bytes, 4 * (kind == OptimizerKind::kMuon ? matrices + 2 * rest : 2 * matrices + 2 * rest));
    const OptimizerMemory memory = optimizer_memory(place.store, options_of(file, kind), 3);
    EXPECT_EQ(memory.moments_bytes, bytes);
    // Of the widest, in doubles, for each of three threads: the matrix, a row, four squares of its short side.
    EXPECT_EQ(memory.scratch_bytes, kind == OptimizerKind::kMuon ? 3 * 8 * (20 * 20 + 20 + 4 * 20 * 20) : 0);
  }
}

// The iteration ends with singular values in about [0.68, 1.13], however large the gradient was.
TEST(Optimizers, MuonMakesAStepNearlyOrthogonal) {
  constexpr int64_t kRows = 16, kCols = 64;
  for (const float scale : {1.0f, 1e-3f, 1e6f}) {
    std::vector<float> p(kRows * kCols), g(kRows * kCols);
    for (uint32_t i = 0; i < g.size(); ++i) g[i] = scale * number(0, 1, i);
    Muon muon({{0, kRows, kCols}}, std::make_unique<AdamW>(std::vector<ParameterRange>{}, AdamWOptions{}),
              {.scale = 1, .weight_decay = 0});
    ThreadPool pool(1);
    muon.step(p, g, 1.0, pool);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kRows; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < kCols; ++k)
          sum += static_cast<double>(p[static_cast<size_t>(i * kCols + k)] * p[static_cast<size_t>(j * kCols + k)]);
        if (i == j)
          EXPECT_TRUE(sum > 0.4 && sum < 1.4) << scale << " " << i << " " << sum;
        else
          EXPECT_TRUE(std::abs(sum) < 0.35) << scale << " " << i << "," << j << " " << sum;
      }
  }
}

TEST(Optimizers, AMatrixWithoutGradientStays) {
  std::vector<float> p(16 * 16, 0.5f);
  const std::vector<float> g(16 * 16);
  Muon muon({{0, 16, 16}}, std::make_unique<AdamW>(std::vector<ParameterRange>{}, AdamWOptions{}), {.weight_decay = 0});
  ThreadPool pool(1);
  muon.step(p, g, 1.0, pool);
  for (const float value : p) ASSERT_EQ(value, 0.5f);
}

}  // namespace
}  // namespace patina
