#include "selftest/trial.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "graph/reference_executor.h"

namespace patina {

namespace {

void clear_gradients(Adapter& adapter) { std::ranges::fill(adapter.parameters().gradients(), 0.0f); }

template <typename AnyExecutor>
void bind_feed(AnyExecutor& executor, const TrainableGraph& graph, const Feed& feed, const float* scale) {
  for (const auto& [id, data] : feed.inputs) executor.bind(id, const_cast<void*>(data));
  if (graph.differentiation().seed != kNoValue) executor.bind(graph.differentiation().seed, const_cast<float*>(scale));
}

// A random sign for every number, over the norm of its parameter's gradient.
std::vector<double> direction(const ParameterStore& store, std::span<const double> gradient, uint32_t stream) {
  const RandomStream random(7, RandomUse::kTest, stream);
  std::vector<double> along(gradient.size());
  for (const ParameterStore::Slice& slice : store.slices()) {
    const size_t begin = static_cast<size_t>(slice.offset), end = begin + static_cast<size_t>(slice.shape.elements());
    double squares = 0;
    for (size_t i = begin; i < end; ++i) squares += gradient[i] * gradient[i];
    for (size_t i = begin; i < end; ++i) along[i] = (random.uniform(i) < 0.5 ? -1.0 : 1.0) / std::sqrt(squares);
  }
  return along;
}

}  // namespace

const TriedAdapter& lora() {
  static const TriedAdapter tried{"lora", {.rank = 4, .alpha = 8, .seed = 1}};
  return tried;
}
const TriedAdapter& dora() {
  static const TriedAdapter tried{"dora", {.kind = AdapterKind::kDora, .rank = 4, .alpha = 8, .seed = 1}};
  return tried;
}
const TriedAdapter& lokr() {
  static const TriedAdapter tried{"lokr",
                                  {.kind = AdapterKind::kLokr,
                                   .rank = 4,
                                   .alpha = 8,
                                   .ranks = SiteNumbers("--rank-pattern", "layers.0.*=1000"),
                                   .factor = 4,
                                   .seed = 1}};
  return tried;
}
const TriedAdapter& lokr_both() {
  static const TriedAdapter tried{
      "lokr both",
      {.kind = AdapterKind::kLokr, .rank = 2, .alpha = 4, .factor = -1, .decompose_both = true, .seed = 1}};
  return tried;
}

std::vector<Site> layer_sites(const TrainableModel& model) {
  std::vector<Site> sites = model.sites();
  std::erase_if(sites, [](const Site& site) { return site.layer < 0; });
  return sites;
}

std::unique_ptr<Adapter> fresh_adapter(const RungContext& context, std::span<const Site> sites,
                                       const TriedAdapter& tried) {
  return context.parts.make_adapter(sites, tried.options);
}

std::unique_ptr<Adapter> disturbed_adapter(const RungContext& context, std::span<const Site> sites,
                                           const TriedAdapter& tried) {
  constexpr double kChange = 0.05;
  std::unique_ptr<Adapter> adapter = fresh_adapter(context, sites, tried);
  ParameterStore& store = adapter->parameters();
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const std::vector<double> change =
        random_normals(store.slices()[i].shape.elements(), static_cast<uint32_t>(100 + i));
    for (size_t j = 0; j < change.size(); ++j) store.value(i)[j] += static_cast<float>(kChange * change[j]);
  }
  return adapter;
}

std::vector<double> random_normals(int64_t count, uint32_t stream) {
  const RandomStream random(1, RandomUse::kTest, stream);
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(random.normal(static_cast<uint64_t>(i)));
  return numbers;
}

Trial::Trial(RungContext& context, Adapter* adapter, const TrainableOptions& options)
    : adapter_(adapter),
      graph_(context.model().build(adapter, options)),
      executor_(graph_->graph(), *context.parts.backend, context.pool),
      prelude_(adapter, *context.parts.backend, context.pool) {}

LossAndGradient Trial::run(std::span<const Items> micro_batches, int64_t padding) {
  const bool trained = graph_->differentiation().seed != kNoValue;
  prelude_.run();
  if (trained) clear_gradients(*adapter_);
  LossAndGradient result;
  for (const Items& items : micro_batches) {
    const Feed feed = graph_->feed(items, padding);
    bind_feed(executor_, *graph_, feed, &scale_);
    executor_.run(feed.sizes);
    result.loss += static_cast<double>(executor_.tensor(graph_->loss()).f32()[0]);
  }
  if (trained)
    result.gradient.assign(adapter_->parameters().gradients().begin(), adapter_->parameters().gradients().end());
  return result;
}

ExactGradients exact_gradients(RungContext& context, Adapter& adapter, const Items& items) {
  constexpr double kStep = 1e-30;
  constexpr uint32_t kDirections = 2;
  Prelude(&adapter, *context.parts.backend, context.pool).run();
  const auto built = context.model().build(&adapter, {GradientOptions{}});
  const Graph& graph = built->graph();
  const Feed feed = built->feed(items, 0);
  const ParameterStore& store = adapter.parameters();
  clear_gradients(adapter);

  ExactGradients result;
  ReferenceExecutor<double> reference(graph);
  bind_feed(reference, *built, feed, &Trial::kScale);
  reference.run(feed.sizes);
  result.exact.loss = reference.tensor(built->loss()).at(0);
  result.exact.gradient.resize(store.values().size());
  std::map<ValueId, int64_t> offsets;  // of each trainable
  for (const auto& [trainable, gradient] : built->differentiation().gradient) {
    const int64_t offset = static_cast<const float*>(graph.value(trainable).data) - store.values().data();
    offsets[trainable] = offset;
    const RefTensor<double> numbers = reference.tensor(gradient);
    std::copy_n(numbers.data, numbers.shape.elements(), result.exact.gradient.begin() + offset);
  }

  result.directions.resize(kDirections);
  const int forward_nodes = graph.value(built->loss()).producer + 1;
  context.pool.run(kDirections, [&](int64_t d, int) {
    ExactGradients::Direction& one = result.directions[static_cast<size_t>(d)];
    one.along = direction(store, result.exact.gradient, static_cast<uint32_t>(d));
    ReferenceExecutor<std::complex<double>> stepped(graph);
    bind_feed(stepped, *built, feed, &Trial::kScale);
    for (const auto& [trainable, offset] : offsets)
      for (int64_t i = 0; i < graph.maximum_shape(trainable).elements(); ++i)
        stepped.poke(trainable, i,
                     {static_cast<double>(store.values()[static_cast<size_t>(offset + i)]),
                      kStep * one.along[static_cast<size_t>(offset + i)]});
    stepped.run(feed.sizes, forward_nodes);
    one.derivative = static_cast<double>(Trial::kScale) * stepped.tensor(built->loss()).at(0).imag() / kStep;
  });
  return result;
}

}  // namespace patina
