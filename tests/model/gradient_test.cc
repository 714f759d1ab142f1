// Gradients of a whole model: what no test of one op can show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference_backend.h"
#include "graph/executor.h"
#include "graph/reference_executor.h"
#include "model/decoder_lm.h"
#include "support/compare.h"
#include "support/tiny_lm.h"

namespace patina::testing {
namespace {

constexpr float kSeed = 0.125f;

// Sequences end to end, some of whose tokens are supervised.
struct Batch {
  explicit Batch(const std::vector<int>& lengths) {
    const RandomStream random(2, RandomUse::kTest, 0);
    for (const int length : lengths) {
      for (int i = 0; i < length; ++i) {
        if (i % 3 != 1) {
          rows.push_back(static_cast<int32_t>(tokens.size()));
          labels.push_back(static_cast<int32_t>(random.below(260, 1000 + tokens.size())));
        }
        tokens.push_back(static_cast<int32_t>(random.below(260, tokens.size())));
        positions.push_back(i);
      }
      offsets.push_back(static_cast<int32_t>(tokens.size()));
      first.push_back(0);
    }
  }
  std::vector<int64_t> sizes() const {
    return {static_cast<int64_t>(tokens.size()), static_cast<int64_t>(offsets.size()),
            static_cast<int64_t>(first.size()), static_cast<int64_t>(rows.size())};
  }
  LossLimits limits() const { return {sizes()[0] + 3, sizes()[2] + 1, sizes()[0]}; }

  std::vector<int32_t> tokens, positions, offsets{0}, first, rows, labels;
  float seed = kSeed;
};

template <typename AnyExecutor>
void bind(AnyExecutor& executor, const LossGraph& graph, Batch& batch) {
  executor.bind(graph.tokens, batch.tokens.data());
  executor.bind(graph.positions, batch.positions.data());
  executor.bind(graph.offsets, batch.offsets.data());
  executor.bind(graph.first, batch.first.data());
  executor.bind(graph.supervised[0].rows, batch.rows.data());
  executor.bind(graph.supervised[0].labels, batch.labels.data());
  executor.bind(graph.gradients.seed, &batch.seed);
}

struct Subject {
  explicit Subject(const TinyModel& options, Batch inputs, const GradientOptions& gradients = {})
      : lm(options),
        adapter(half_trained(layer_sites(lm.model))),
        batch(std::move(inputs)),
        graph(build_loss_graph(lm.model, adapter.get(), batch.limits(), gradients)) {}

  // Loss, and the gradient of the adapter on top of zeros.
  double run(const Backend& backend, int threads) {
    std::fill(adapter->parameters().gradients().begin(), adapter->parameters().gradients().end(), 0.0f);
    ThreadPool pool(threads);
    Executor executor(graph->graph, backend, pool);
    bind(executor, *graph, batch);
    executor.run(batch.sizes());
    return static_cast<double>(executor.tensor(graph->loss).f32()[0]);
  }

  std::vector<double> gradient_of(const std::string& parameter) {
    ParameterStore& store = adapter->parameters();
    for (size_t i = 0; i < store.slices().size(); ++i)
      if (store.slices()[i].name == parameter)
        return {store.gradient(i), store.gradient(i) + store.slices()[i].shape.elements()};
    ADD_FAILURE() << parameter;
    return {};
  }

  TinyLm lm;
  std::unique_ptr<Adapter> adapter;
  Batch batch;
  std::unique_ptr<LossGraph> graph;
};

double norm(std::span<const double> numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0));
}

// The gradient of every parameter by the gradient nodes, in double precision.
struct Exact {
  double loss;
  std::map<ValueId, std::vector<double>> gradients;
};

Exact exact_gradients(Subject& subject) {
  ReferenceExecutor<double> reference(subject.graph->graph);
  bind(reference, *subject.graph, subject.batch);
  reference.run(subject.batch.sizes());
  Exact exact{reference.tensor(subject.graph->loss).at(0), {}};
  for (const auto& [trainable, gradient] : subject.graph->gradients.gradient) {
    const RefTensor<double> tensor = reference.tensor(gradient);
    exact.gradients[trainable].assign(tensor.data, tensor.data + tensor.shape.elements());
  }
  return exact;
}

class ModelGradients : public ::testing::TestWithParam<DType> {};

// A step of all elements at once, each with a random sign, tests every element in one run: an error of a share e of the
// gradient changes the derivative by about e times its norm. Single elements say where.
TEST_P(ModelGradients, MeetComplexSteps) {
  Subject subject({.dtype = GetParam(), .feed_forward = 256}, Batch({5, 4}));
  const LossGraph& built = *subject.graph;
  const Exact exact = exact_gradients(subject);
  ASSERT_EQ(exact.gradients.size(), 2u * 2u * 7u);
  ReferenceExecutor<std::complex<double>> stepped(built.graph);
  bind(stepped, built, subject.batch);
  const int forward_nodes = built.graph.value(built.loss).producer + 1;
  constexpr double kStep = 1e-30;
  const auto derivative = [&](ValueId id, const std::map<int64_t, double>& direction) {
    const float* numbers = static_cast<const float*>(built.graph.value(id).data);
    stepped.clear_pokes();
    for (const auto& [element, sign] : direction)
      stepped.poke(id, element, {static_cast<double>(numbers[element]), sign * kStep});
    stepped.run(subject.batch.sizes(), forward_nodes);
    return static_cast<double>(kSeed) * stepped.tensor(built.loss).at(0).imag() / kStep;
  };
  const RandomStream random(3, RandomUse::kTest, 0);
  for (const auto& [id, gradient] : exact.gradients) {
    const std::string& name = built.graph.value(id).name;
    const double size = norm(gradient);
    EXPECT_GT(size, 1e-4) << name;
    std::map<int64_t, double> direction;
    double along = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double sign = random.uniform(i) < 0.5 ? -1 : 1;
      direction[static_cast<int64_t>(i)] = sign;
      along += sign * gradient[i];
    }
    EXPECT_TRUE(std::abs(derivative(id, direction) - along) <= kExactGradient * size) << name << ", all elements";
    if (GetParam() != DType::kF32) continue;
    for (const uint64_t element : {uint64_t{0}, random.below(gradient.size(), 5), uint64_t{gradient.size() - 1}}) {
      const double expected = derivative(id, {{static_cast<int64_t>(element), 1}});
      EXPECT_TRUE(std::abs(gradient[element] - expected) <= kExactGradient * size) << name << ", element " << element;
    }
  }
}

// Measured: 7e-6 at most, of the plain float reference 6e-6.
TEST_P(ModelGradients, KernelsMeetDoublePrecision) {
  const double tolerance = gradient_tolerance(512);  // of its longest sum, down
  const auto large_vocabulary = [](std::string_view name, DType&, Shape& shape) {
    if (name == "token_embd.weight" || name == "output.weight") shape[0] = 1100;  // more than the head takes at once
    return true;
  };
  for (const bool tied : {true, false}) {
    Subject subject({.dtype = GetParam(), .tied_head = tied, .edit = large_vocabulary}, Batch({17, 9, 1}));
    const Exact exact = exact_gradients(subject);
    for (const Backend* backend : {&cpu_backend(), &reference_backend()}) {
      const double loss = subject.run(*backend, 2);
      EXPECT_TRUE(std::abs(loss - exact.loss) <= tolerance * exact.loss) << loss << " " << exact.loss;
      for (const auto& [trainable, gradient] : exact.gradients) {
        const std::string& parameter = subject.graph->graph.value(trainable).name;
        const std::vector<double> got = subject.gradient_of(parameter);
        const Comparison result = compare(got, gradient, {});
        EXPECT_TRUE(result.non_finite == 0 && result.relative_norm <= tolerance)
            << backend->name() << " " << parameter << ": " << result.str();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelGradients,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1,
                                           DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                           DType::kMXFP4),
                         [](const auto& tested) { return std::string(name(tested.param)); });

// Grouped heads, several sequences, every linear layer: the same bits by every formulation, and double precision's
// gradient. Two layers of seven products, but no gradient flows below the first layer's q, k and v.
TEST_P(ModelGradients, FormulationsGiveTheSameBits) {
  constexpr int64_t kProducts = 11;
  std::vector<float> first;
  for (const FormulationName& row : kFormulations) {
    Subject subject({.dtype = GetParam()}, Batch({17, 9, 1}), {row.formulation});
    const FormulationCounts& counts = subject.graph->gradients.formulations;
    const bool quantised = info(GetParam()).block_values > 1;
    const Formulation ran = row.formulation == Formulation::kMm && quantised ? Formulation::kOutprod : row.formulation;
    for (const FormulationName& other : kFormulations)
      EXPECT_EQ(counts[other.formulation], other.formulation == ran ? kProducts : 0) << row.name << " " << other.name;
    EXPECT_EQ(counts.quantised_weights, ran == row.formulation ? 0 : kProducts);
    EXPECT_EQ(counts.strided_gradients, 0);
    const Exact exact = exact_gradients(subject);  // before a run: the oracle adds to what the gradients are
    const double loss = subject.run(cpu_backend(), 2);
    std::vector<float> all(subject.adapter->parameters().gradients().begin(),
                           subject.adapter->parameters().gradients().end());
    std::vector<double> got, expected;
    for (const auto& [trainable, gradient] : exact.gradients) {
      const std::vector<double> kernels = subject.gradient_of(subject.graph->graph.value(trainable).name);
      expected.insert(expected.end(), gradient.begin(), gradient.end());
      got.insert(got.end(), kernels.begin(), kernels.end());
    }
    const Comparison result = compare(got, expected, {});
    EXPECT_TRUE(1 - result.cosine < 1e-10 && result.relative_norm <= gradient_tolerance(512)) << result.str();
    RecordProperty(fmt::format("{}_max_relative_error", row.name),
                   fmt::format("{:.3g}", result.max_error / result.max_expected));
    RecordProperty(fmt::format("{}_one_minus_cosine", row.name), fmt::format("{:.3g}", 1 - result.cosine));
    all.push_back(static_cast<float>(loss));
    if (first.empty()) first = all;
    EXPECT_EQ(std::memcmp(all.data(), first.data(), all.size() * sizeof(float)), 0) << row.name;
  }
}

// By segments of layers, with any formulation: less memory, the same bits.
TEST(WholeModel, RecomputeGivesTheSameBits) {
  std::vector<float> first;
  int64_t previous_bytes = INT64_MAX;
  int previous_nodes = -1;
  for (const int segments : {1, 2, 3, 5, 99}) {
    Subject subject({.dtype = DType::kQ8_0, .layers = 5}, Batch({33, 20, 5}), {Formulation::kFused, segments});
    const double loss = subject.run(cpu_backend(), 2);
    std::vector<float> all(subject.adapter->parameters().gradients().begin(),
                           subject.adapter->parameters().gradients().end());
    all.push_back(static_cast<float>(loss));
    if (first.empty()) first = all;
    EXPECT_EQ(std::memcmp(all.data(), first.data(), all.size() * sizeof(float)), 0) << segments;
    const int64_t bytes = plan_memory(subject.graph->graph, cpu_backend(), 2).arena_bytes;
    EXPECT_TRUE(segments == 99 ? bytes == previous_bytes : bytes < previous_bytes) << segments << ": " << bytes;
    EXPECT_TRUE(segments == 99 ? subject.graph->repeated_nodes == previous_nodes
                               : subject.graph->repeated_nodes > previous_nodes);
    previous_bytes = bytes;
    previous_nodes = subject.graph->repeated_nodes;
  }
  for (const FormulationName& row : kFormulations) {
    Subject subject({.dtype = DType::kBF16}, Batch({9, 4}), {row.formulation, 1});
    Subject again({.dtype = DType::kBF16}, Batch({9, 4}), {row.formulation, 2});
    EXPECT_EQ(subject.run(cpu_backend(), 2), again.run(cpu_backend(), 3));
    EXPECT_TRUE(std::ranges::equal(subject.adapter->parameters().gradients(), again.adapter->parameters().gradients()))
        << row.name;
  }
}

TEST(WholeModel, ThreadsAndInstructionSetsGiveTheSameBits) {
  Subject subject({.dtype = DType::kQ4_K}, Batch({33, 20, 5}));
  std::vector<float> first;
  for (const std::string& isa : cpu_isas()) {
    if (isa == "portable") continue;  // has no fused multiply-add
    use_isa(isa);
    for (const int threads : {1, 2, 3, 5}) {
      const double loss = subject.run(cpu_backend(), threads);
      std::vector<float> all(subject.adapter->parameters().gradients().begin(),
                             subject.adapter->parameters().gradients().end());
      all.push_back(static_cast<float>(loss));
      if (first.empty()) first = all;
      EXPECT_EQ(first, all) << isa << ", " << threads << " threads";
    }
  }
  use_isa("");
}

}  // namespace
}  // namespace patina::testing
