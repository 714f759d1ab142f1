// What a training run exports, against what it trained.
#include <gtest/gtest.h>

#include "adapter/format_rules.h"
#include "adapter/prelude.h"
#include "quant/decode.h"
#include "support/adapter_kinds.h"
#include "support/branch.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

Site site_of(const DecoderModel& model, const AdaptedSite& adapted) {
  const std::vector<Site> sites = model.sites();
  return *std::ranges::find_if(
      sites, [&](const Site& site) { return site.layer == adapted.layer && site.name == adapted.site; });
}

// Of the model, in Hugging Face order.
Matrix model_weight(const DecoderModel& model, const AdaptedSite& adapted) {
  const Tensor weight = site_of(model, adapted).weight;
  std::vector<float> row(static_cast<size_t>(adapted.in)), all;
  for (int64_t r = 0; r < adapted.out; ++r) {
    decode_row(weight.dtype)(weight.row(r), 0, adapted.in, row.data());
    all.insert(all.end(), row.begin(), row.end());
  }
  return matrix(adapted.out, adapted.in, all);
}

// What the adapter does in the program's own graph to the columns of the identity, less what the frozen weight does.
Matrix effect(const DecoderModel& model, Adapter& adapter, const AdaptedSite& adapted) {
  const Site site = site_of(model, adapted);
  ThreadPool pool(2);
  Prelude(&adapter, cpu_backend(), pool).run();
  Graph graph;
  const ValueId x = graph.input("x", DType::kF32, {site.in, site.in}), weight = graph.frozen("w", site.weight);
  const ValueId adapted_y = adapter.linear(graph, x, weight, kNoValue, site.layer, site.name, {});
  const ValueId plain_y = linear(graph, nullptr, x, weight, kNoValue, site.layer, site.name, {});
  graph.mark_output(adapted_y);
  graph.mark_output(plain_y);
  Executor executor(graph, cpu_backend(), pool);
  std::vector<float> identity(static_cast<size_t>(site.in * site.in));
  for (int64_t i = 0; i < site.in; ++i) identity[static_cast<size_t>(i * (site.in + 1))] = 1.0f;
  executor.bind(x, identity.data());
  executor.run({});
  const float *with = executor.tensor(adapted_y).f32(), *without = executor.tensor(plain_y).f32();
  return build(site.out, site.in, [&](int64_t r, int64_t c) {
    return static_cast<double>(with[c * site.out + r]) - static_cast<double>(without[c * site.out + r]);
  });
}

struct Scaling {
  const char* name;
  void (*set)(AdapterOptions& options);
};
constexpr Scaling kScalings[] = {{"plain", [](AdapterOptions&) {}},
                                 {"rslora", [](AdapterOptions& options) { options.rslora = true; }},
                                 {"mixed", [](AdapterOptions& options) {
                                    options.ranks = SiteNumbers("--rank-pattern", "layers.1.q=3");
                                    options.alphas = SiteNumbers("--alpha-pattern", "down=5");
                                  }}};

TEST(AdapterFormats, FieldIssue21_FilesMeanWhatTheTrainerTrained) {
  const TinyLm lm({.dtype = DType::kQ4_1, .width = 128, .feed_forward = 256});
  const std::vector<Sequence> sequences = {random_sequence(40, 2, 0), random_sequence(9, 2, 1)};
  int written = 0;
  for (const Kind& kind : kinds())
    for (const Scaling& scaling : kScalings) {
      AdapterOptions options = kind.options;
      // Each rounding to BF16 is at most 2^-9. Four factors of few columns are rounded where both are low-rank.
      const double rounded = options.decompose_both ? 8e-3 : 4e-3;
      scaling.set(options);
      Adapter adapter(layer_sites(lm.model, {"q", "v", "down"}), options);
      train(lm.model, adapter, sequences, plain_options(10, 3e-2));
      disturb(adapter);  // few steps leave numbers alike, which BF16 rounds all to the same side
      const std::vector<AdaptedSite> sites = adapter.sites();
      std::vector<Matrix> expected;
      for (const AdaptedSite& site : sites) expected.push_back(effect(lm.model, adapter, site));
      for (const AdapterFormatRow& format : adapter_formats()) {
        if (!format_obstacle(format.format, sites).empty()) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", kind.name, scaling.name, format.name));
        const TempDir directory;
        const std::filesystem::path path =
            format.is_directory
                ? directory.path()
                : directory.path() / (format.format == AdapterFormat::kGguf ? "x.gguf" : "x.safetensors");
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          write_adapter(format.format, path, {sites, "", {}}, base_of(lm.model), dtype);
          const std::vector<Matrix> deltas =
              deltas_of_file(format.format, path, sites, base_of(lm.model),
                             [&](const AdaptedSite& site) { return model_weight(lm.model, site); });
          ASSERT_EQ(deltas.size(), expected.size());
          for (size_t i = 0; i < deltas.size(); ++i) {
            const double error =
                dtype == DType::kF32 ? distance(expected[i], deltas[i]) : relative_norm(deltas[i], expected[i]);
            EXPECT_TRUE(error <= (dtype == DType::kF32 ? 1e-6 : rounded))
                << site_label(sites[i].layer, sites[i].site) << " " << name(dtype) << " " << error;
          }
        }
        ++written;
      }
    }
  EXPECT_EQ(written, 60) << "not every kind has a form in every format";
}

}  // namespace
}  // namespace patina::testing
