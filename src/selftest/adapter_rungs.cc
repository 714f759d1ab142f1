// Rungs on adapters of any model: their parameters, their first values, their products, their files.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "selftest/lokr_rule.h"
#include "selftest/measures.h"
#include "selftest/plain.h"
#include "selftest/safetensors_reader.h"
#include "selftest/tables.h"
#include "selftest/trial.h"

namespace patina {

namespace {

using Measured = std::vector<double>;

// Bits of a matrix, to be found again.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
std::span<const float> values_of(const ParameterStore& store, const ParameterStore::Slice& slice) {
  return store.values().subspan(static_cast<size_t>(slice.offset), static_cast<size_t>(slice.shape.elements()));
}

// Suffix and shape of every parameter of a site, by the formulas of the three kinds.
using Shapes = std::vector<std::pair<std::string, Shape>>;
void add_factor(Shapes& shapes, const std::string& name, int64_t rows, int64_t columns, bool whole, int64_t dim) {
  if (whole) {
    shapes.emplace_back(name, Shape{rows, columns});
  } else {
    shapes.emplace_back(name + "_a", Shape{rows, dim});
    shapes.emplace_back(name + "_b", Shape{dim, columns});
  }
}
int64_t dim_at(const Site& site, const AdapterOptions& options) {
  return static_cast<int64_t>(options.ranks.at(site).value_or(static_cast<double>(options.rank)));
}
Shapes expected_shapes(const Site& site, const AdapterOptions& options) {
  const int64_t dim = dim_at(site, options);
  Shapes shapes;
  if (options.kind != AdapterKind::kLokr) {
    shapes = {{"lora_a", {dim, site.in}}, {"lora_b", {site.out, dim}}};
    if (options.kind == AdapterKind::kDora) shapes.emplace_back("magnitude", Shape{site.out});
    return shapes;
  }
  const auto [l, k] = closed_factor_pair(site.out, options.factor);
  const auto [m, n] = closed_factor_pair(site.in, options.factor);
  add_factor(shapes, "lokr_w1", l, m, !(options.decompose_both && 2 * dim < std::max(l, m)), dim);
  add_factor(shapes, "lokr_w2", k, n, 2 * dim >= std::max(k, n), dim);
  return shapes;
}

// --- T1: files are bound ---

// Mistakes in the tensors of a written file: each must hold the bits of one parameter, each parameter must be in one
// of them, and an adapter made from the file must be the one that was written.
double unbound(RungContext& context, const TriedAdapter& tried, AdapterFormat format) {
  const TrainableModel& model = context.model();
  const auto adapter = disturbed_adapter(context, model.sites(), tried);
  const ParameterStore& store = adapter->parameters();
  const bool directory = format == AdapterFormat::kPeft;
  const std::filesystem::path path = context.directory() / (directory ? "adapter" : "adapter.safetensors");
  if (directory) std::filesystem::create_directories(path);
  context.parts.write_adapter(format, path, {adapter->sites(), "synthetic", {}}, model.base());
  const ReadSafetensors file = read_safetensors(directory ? path / "adapter_model.safetensors" : path);
  int mistakes = 0;
  std::vector<int> uses(store.slices().size());
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(".alpha")) continue;
    int bound = 0;
    for (size_t i = 0; i < uses.size(); ++i)
      if (same_bits(tensor.values, values_of(store, store.slices()[i]))) {
        ++bound;
        ++uses[i];
      }
    mistakes += bound == 1 ? 0 : 1;
  }
  mistakes += static_cast<int>(std::ranges::count_if(uses, [](int count) { return count != 1; }));
  const Adapter again(model.sites(), read_adapter(path, model.base()).sites, path.string());
  const ParameterStore& read = const_cast<Adapter&>(again).parameters();
  return mistakes + (same_bits(read.values(), store.values()) ? 0 : 1);
}
Measured measure_files(RungContext& context) {
  return {unbound(context, lora(), AdapterFormat::kPeft) + unbound(context, dora(), AdapterFormat::kPeft) +
          unbound(context, lokr(), AdapterFormat::kLycoris) + unbound(context, lokr_both(), AdapterFormat::kLycoris)};
}

// --- T2: shapes and counts ---

Measured measure_shapes(RungContext& context) {
  const std::vector<Site> sites = context.model().sites();
  int mistakes = 0;
  for (const TriedAdapter* const tried : {&lora(), &dora(), &lokr(), &lokr_both()}) {
    const auto adapter = fresh_adapter(context, sites, *tried);
    std::map<std::string, Shape> found;
    for (const ParameterStore::Slice& slice : adapter->parameters().slices()) found[slice.name] = slice.shape;
    int64_t count = 0;
    size_t expected = 0;
    for (const Site& site : sites)
      for (const auto& [suffix, shape] : expected_shapes(site, tried->options)) {
        const auto at = found.find(site_label(site.layer, site.name) + "." + suffix);
        mistakes += at != found.end() && at->second == shape ? 0 : 1;
        count += shape.elements();
        ++expected;
      }
    mistakes += found.size() == expected ? 0 : 1;
    mistakes += adapter->parameters().parameters() == count ? 0 : 1;
    mistakes += count_parameters(sites, tried->options) == count ? 0 : 1;
  }
  return {static_cast<double>(mistakes)};
}

// --- T6: what begins at zero hides the gradient of its partner ---

Measured measure_first_gradients(RungContext& context) {
  double hidden = 0, least = HUGE_VAL;
  for (const TriedAdapter* const tried : {&lora(), &lokr()}) {
    const auto adapter = fresh_adapter(context, context.model().sites(), *tried);
    ParameterStore& store = adapter->parameters();
    const LossAndGradient got = Trial(context, adapter.get(), {GradientOptions{context.formulation}}).run({0, 1, 2, 3});
    for (const ParameterStore::Slice& slice : store.slices()) {
      double largest = 0;
      for (int64_t i = 0; i < slice.shape.elements(); ++i)
        largest = larger(largest, std::abs(got.gradient[static_cast<size_t>(slice.offset + i)]));
      const std::span<const float> values = values_of(store, slice);
      const bool begins_at_zero = std::ranges::all_of(values, [](float value) { return value == 0.0f; });
      if (!begins_at_zero)
        hidden = larger(hidden, largest);
      else
        least = -larger(-least, -largest);
    }
  }
  return {hidden, least};
}

// --- T7: the loss ---

Measured measure_loss(RungContext& context) {
  Measured measured = {0};
  const Items items = {0, 1, 2, 3};
  measured[0] = relative_error(Trial(context, nullptr, {}).run(items).loss, context.model().exact_loss({}, items));
  for (const TriedAdapter* const tried : {&lora(), &dora(), &lokr()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    const double got = Trial(context, adapter.get(), {}).run(items).loss;
    measured[0] = larger(measured[0], relative_error(got, context.model().exact_loss(adapter->sites(), items)));
  }
  return measured;
}

// --- LK2, LK3: the product of a site ---

constexpr int64_t kRows = 5;

// x [kRows, in] of a site.
std::vector<float> input_of(const Site& site) {
  const std::vector<double> numbers = random_normals(kRows * site.in, 900);
  return {numbers.begin(), numbers.end()};
}

// y [kRows, out] of a site alone.
std::vector<double> product_of(RungContext& context, Adapter* adapter, const Site& site) {
  Graph graph;
  const ValueId x = graph.input("x", DType::kF32, {kRows, site.in});
  const ValueId y = linear(graph, adapter, x, graph.frozen("W", site.weight), kNoValue, site.layer, site.name, {});
  graph.mark_output(y);
  Executor executor(graph, *context.parts.backend, context.pool);
  std::vector<float> numbers = input_of(site);
  executor.bind(x, numbers.data());
  executor.run({});
  return as_doubles({executor.tensor(y).f32(), static_cast<size_t>(kRows * site.out)});
}

Measured measure_untrained_lokr(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lokr(), &lokr_both()}) {
    const auto adapter = fresh_adapter(context, context.model().sites(), *tried);
    for (const Site& site : context.model().sites())
      measured[0] += differences(product_of(context, adapter.get(), site), product_of(context, nullptr, site));
  }
  return measured;
}

Measured measure_kronecker(RungContext& context) {
  Measured measured = {0};
  for (const TriedAdapter* const tried : {&lokr(), &lokr_both()}) {
    const auto adapter = disturbed_adapter(context, context.model().sites(), *tried);
    const std::vector<AdaptedSite> numbers = adapter->sites();
    for (const Site& site : context.model().sites()) {
      std::vector<double> weight = decoded_matrix(site.weight);
      add_adapter(weight, *std::ranges::find_if(numbers, [&](const AdaptedSite& one) {
                    return one.layer == site.layer && one.site == site.name;
                  }));
      const std::vector<float> x = input_of(site);
      std::vector<double> expected;
      for (int64_t t = 0; t < kRows; ++t)
        for (int64_t o = 0; o < site.out; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < site.in; ++i)
            sum += static_cast<double>(x[static_cast<size_t>(t * site.in + i)]) *
                   weight[static_cast<size_t>(o * site.in + i)];
          expected.push_back(sum);
        }
      measured[0] = larger(measured[0], relative_error(product_of(context, adapter.get(), site), expected));
    }
  }
  return measured;
}

// --- LK5: an exported file, read by another reader ---

Measured measure_export(RungContext& context) {
  const TrainableModel& model = context.model();
  const std::vector<Site> sites = model.sites();
  int mistakes = 0;
  for (const TriedAdapter* const tried : {&lokr(), &lokr_both()}) {
    const auto adapter = disturbed_adapter(context, sites, *tried);
    const ParameterStore& store = adapter->parameters();
    const std::filesystem::path path = context.directory() / "lokr_weights.safetensors";
    context.parts.write_adapter(AdapterFormat::kLycoris, path, {adapter->sites(), "synthetic", {}}, model.base());
    const ReadSafetensors file = read_safetensors(path);
    const auto check = [&](const std::string& key, const Shape& shape, std::span<const float> values) {
      const auto found = file.tensors.find(key);
      const bool good = found != file.tensors.end() && found->second.dtype == "F32" &&
                        std::ranges::equal(found->second.shape, shape.dims()) &&
                        same_bits(found->second.values, values);
      mistakes += good ? 0 : 1;
    };
    size_t expected = 0;
    for (const Site& site : sites) {
      std::string module = model.module_of(site);
      std::ranges::replace(module, '.', '_');
      const Shapes shapes = expected_shapes(site, tried->options);
      for (const auto& [suffix, shape] : shapes) {
        const std::string name = site_label(site.layer, site.name) + "." + suffix;
        const auto slice = std::ranges::find(store.slices(), name, &ParameterStore::Slice::name);
        if (slice != store.slices().end())
          check("lycoris_" + module + "." + suffix, shape, values_of(store, *slice));
        else
          ++mistakes;
      }
      const bool whole = shapes.size() == 2;
      const float alpha = whole ? static_cast<float>(dim_at(site, tried->options)) : tried->options.alpha;
      check("lycoris_" + module + ".alpha", Shape{}, std::span(&alpha, 1));
      expected += shapes.size() + 1;
    }
    mistakes += file.tensors.size() == expected ? 0 : 1;
    mistakes += file.metadata.contains("lokr_config") ? 0 : 1;
  }
  return {static_cast<double>(mistakes)};
}

}  // namespace

Rungs adapter_rungs() {
  static const std::vector<Rung> rungs = {
      {"T1",
       "every tensor of a written file is bound exactly once: mistakes",
       Repeats::kOnce,
       {exactly_zero()},
       measure_files},
      {"T2",
       "sites, shapes and parameter count of each kind = formula: mistakes",
       Repeats::kOnce,
       {exactly_zero()},
       measure_shapes},
      {"T6",
       "B = 0 at first: gradient of A is exactly 0, that of B is not",
       Repeats::kByFormulation,
       {exactly_zero("of A, at most"), at_least(1e-12, "of B, at least")},
       measure_first_gradients},
      {"T7",
       "loss = recomputation in plain loops and double precision",
       Repeats::kByType,
       {at_most(1e-5)},
       measure_loss},
      {"LK2", "untrained LoKr = W x: numbers that differ", Repeats::kByType, {exactly_zero()}, measure_untrained_lokr},
      {"LK3",
       "LoKr's product by its factors = by the Kronecker product, built",
       Repeats::kByType,
       {at_most(1e-5)},
       measure_kronecker},
      {"LK5",
       "exported LoKr by another reader: wrong keys, shapes, types, alphas, numbers",
       Repeats::kOnce,
       {exactly_zero()},
       measure_export},
  };
  return rungs;
}

}  // namespace patina
