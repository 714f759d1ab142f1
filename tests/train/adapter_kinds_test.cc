// Every kind of adapter through training: what holds for LoRA holds for all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "adapter/prelude.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "graph/reference_executor.h"
#include "support/adapter_kinds.h"
#include "support/branch.h"
#include "support/compare.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

std::vector<Sequence> some_sequences() { return {random_sequence(40, 2, 0), random_sequence(9, 2, 1)}; }

// Parameters after some steps.
std::vector<float> trained(const DecoderModel& model, std::span<const Site> sites,
                           const AdapterOptions& adapter_options, int threads = 2,
                           const GradientOptions& gradients = {}, int64_t micro_tokens = 0) {
  Adapter adapter(sites, adapter_options);
  LmTrainOptions options = plain_options(3, 1e-2);
  options.gradients = gradients;
  options.micro_tokens = micro_tokens;
  train(model, adapter, some_sequences(), options, threads);
  return {adapter.parameters().values().begin(), adapter.parameters().values().end()};
}

TEST(AdapterKinds, ThreadsAndRecomputeChangeNoBit) {
  for (const DType dtype : {DType::kQ8_0, DType::kBF16}) {
    const TinyLm lm({.dtype = dtype, .layers = 3, .tied_head = false});
    for (const Kind& kind : kinds()) {
      const std::vector<Site> sites = lm.model.sites();  // with the head
      const std::vector<float> first = trained(lm.model, sites, kind.options, 1);
      for (const float value : first) ASSERT_TRUE(std::isfinite(value)) << kind.name;
      for (const int threads : {2, 3}) EXPECT_EQ(trained(lm.model, sites, kind.options, threads), first) << kind.name;
      EXPECT_EQ(trained(lm.model, sites, kind.options, 2, {Formulation::kFused, 3}), first) << kind.name;
      EXPECT_EQ(trained(lm.model, sites, kind.options, 2, {Formulation::kOutprod, 2}), first) << kind.name;
    }
  }
}

// Masks are drawn by place: smaller micro-batches change a run by rounding only.
TEST(AdapterKinds, MicroBatchesDrawTheSameMasks) {
  const TinyLm lm;
  for (const Kind& kind : kinds()) {
    const std::vector<Site> sites = layer_sites(lm.model);
    const std::vector<float> one = trained(lm.model, sites, kind.options, 2, {}, 512),
                             two = trained(lm.model, sites, kind.options, 2, {}, 40);
    const std::vector<double> got(two.begin(), two.end()), expected(one.begin(), one.end());
    const Comparison result = compare(got, expected, {});
    EXPECT_TRUE(result.non_finite == 0 && result.relative_norm <= 1e-3) << kind.name << ": " << result.str();
  }
}

TEST(AdapterKinds, DropoutIsOfTrainingAlone) {
  const TinyLm lm;
  const std::vector<Site> sites = layer_sites(lm.model);
  AdapterOptions options{.rank = 4, .alpha = 8, .seed = 1};
  Adapter plain(sites, options);
  options.dropout = 0.5;
  Adapter dropping(sites, options);
  disturb(plain);
  disturb(dropping);
  ThreadPool pool(2);
  const std::vector<Sequence> sequences = some_sequences();
  const auto loss = [&](Adapter& adapter) {
    return evaluate(lm.model, &adapter, sequences, 512, cpu_backend(), pool).loss_sum;
  };
  EXPECT_EQ(loss(plain), loss(dropping));
  const std::vector<float> with = trained(lm.model, sites, options);
  EXPECT_EQ(with, trained(lm.model, sites, options));
  options.seed = 2;
  EXPECT_NE(with, trained(lm.model, sites, options));
}

// Half-trained loss and gradients of everything, the head included, against the references in double precision.
TEST(AdapterKinds, GradientsMeetDoublePrecision) {
  const TinyLm lm({.dtype = DType::kBF16, .tied_head = false});
  const std::vector<Sequence> sequences = {random_sequence(150, 1, 0), random_sequence(30, 1, 1)};  // two portions
  const std::vector<size_t> which = {0, 1};
  MicroBatch batch;
  fill(batch, sequences, which);
  for (const Kind& kind : kinds()) {
    Adapter adapter(lm.model.sites(), kind.options);
    ParameterStore& store = adapter.parameters();
    for (size_t i = 0; i < store.slices().size(); ++i) {
      const std::vector<float> change = normals(store.slices()[i].shape.elements(), static_cast<uint32_t>(i), 0.02);
      for (size_t j = 0; j < change.size(); ++j) store.value(i)[j] += change[j];
    }
    ThreadPool pool(2);
    LossRunner runner(lm.model, &adapter, loss_limits(sequences, 512), GradientOptions{}, cpu_backend(), pool);
    runner.begin_step(7);
    std::fill(store.gradients().begin(), store.gradients().end(), 0.0f);
    const double loss = runner.run(batch, 0.125f);

    const auto graph = build_loss_graph(lm.model, &adapter, loss_limits(sequences, 512), GradientOptions{});
    std::vector<float> kept(store.gradients().begin(), store.gradients().end());
    std::fill(store.gradients().begin(), store.gradients().end(), 0.0f);
    ReferenceExecutor<double> reference(graph->graph);
    const float seed = 0.125f;
    const int32_t step = 7;
    reference.bind(graph->tokens, batch.tokens.data());
    reference.bind(graph->positions, batch.positions.data());
    reference.bind(graph->offsets, batch.offsets.data());
    reference.bind(graph->first, batch.first.data());
    if (graph->step != kNoValue) {
      reference.bind(graph->step, &step);
      reference.bind(graph->samples, batch.samples.data());
    }
    const std::vector<int64_t> sizes =
        graph->sizes(static_cast<int64_t>(batch.tokens.size()), 2, static_cast<int64_t>(batch.rows.size()));
    ASSERT_EQ(sizes.size(), 5u);
    int64_t row = 0;
    for (size_t i = 0; i < graph->supervised.size(); ++i) {
      reference.bind(graph->supervised[i].rows, batch.rows.data() + row);
      reference.bind(graph->supervised[i].labels, batch.labels.data() + row);
      row += sizes[3 + i];
    }
    reference.bind(graph->gradients.seed, &seed);
    reference.run(sizes);
    EXPECT_NEAR(loss, reference.tensor(graph->loss).at(0), 1e-5 * loss) << kind.name;
    for (const auto& [trainable, gradient] : graph->gradients.gradient) {
      const RefTensor<double> exact = reference.tensor(gradient);
      const std::vector<double> expected(exact.data, exact.data + exact.shape.elements());
      const int64_t offset = static_cast<const float*>(graph->graph.value(trainable).data) - store.values().data();
      const std::vector<double> got(kept.begin() + offset, kept.begin() + offset + exact.shape.elements());
      const Comparison result = compare(got, expected, {});
      EXPECT_TRUE(result.non_finite == 0 && result.max_expected > 0 && result.relative_norm <= 1e-4)
          << kind.name << " " << graph->graph.value(trainable).name << ": " << result.str();
    }
  }
}

// T6 and FieldIssue14: what begins at zero learns in the first step, and hides the gradient of its partner exactly.
TEST(AdapterKinds, FieldIssue14_EveryTargetLearnsInTheFirstStep) {
  const TinyLm lm({.dtype = DType::kQ8_0, .tied_head = false});
  const std::vector<Sequence> sequences = some_sequences();
  for (const Kind& kind : kinds()) {
    Adapter adapter(lm.model.sites(), kind.options);
    const std::vector<float> before(adapter.parameters().values().begin(), adapter.parameters().values().end());
    ThreadPool pool(2);
    Trainer trainer = lm_trainer(lm.model, adapter, sequences, {}, plain_options(1, 1e-3), cpu_backend(), pool);
    Recorder recorder;
    trainer.run(recorder, [] { return false; });
    EXPECT_TRUE(recorder.warnings.empty()) << kind.name;
    const std::vector<GradientNorm> norms = trainer.gradient_norms();
    std::map<std::string, double> learns;  // by site: the gradient of what begins at zero
    for (size_t i = 0; i < norms.size(); ++i) {
      const ParameterStore::Slice& slice = adapter.parameters().slices()[i];
      bool zero = true;
      for (int64_t j = 0; j < slice.shape.elements(); ++j)
        zero = zero && before[static_cast<size_t>(slice.offset + j)] == 0.0f;
      const std::string site = slice.name.substr(0, slice.name.rfind('.'));
      if (zero)
        learns[site] = norms[i].norm;
      else if (!slice.name.ends_with("magnitude"))
        EXPECT_EQ(norms[i].norm, 0.0) << kind.name << " " << slice.name;
      else
        EXPECT_GT(norms[i].norm, 0.0) << kind.name << " " << slice.name;
    }
    EXPECT_EQ(learns.size(), lm.model.sites().size()) << kind.name;
    for (const auto& [site, norm] : learns) EXPECT_GT(norm, 0.0) << kind.name << " " << site;
  }
}

TEST(AdapterKinds, FieldIssue15_AStepOfNothingChangesNothing) {
  const TinyLm lm({.dtype = DType::kQ4_1});
  const std::vector<Sequence> sequences = some_sequences();
  ThreadPool pool(2);
  const auto perplexity = [&](Adapter* with) {
    return std::exp(evaluate(lm.model, with, sequences, 512, cpu_backend(), pool).mean_loss());
  };
  const double base = perplexity(nullptr);
  for (const Kind& kind : kinds()) {
    Adapter adapter(layer_sites(lm.model), kind.options);
    train(lm.model, adapter, sequences, plain_options(1, 1e-12));
    EXPECT_TRUE(std::abs(perplexity(&adapter) - base) <= 1e-4 * base) << kind.name;
    // As its numbers say, so it is.
    Adapter again(lm.model.sites(), adapter.sites(), "x");
    EXPECT_EQ(perplexity(&again), perplexity(&adapter)) << kind.name;
  }
}

TEST(AdapterKinds, FieldIssue16_AnAdapterOfAnotherModelIsRefused) {
  const TinyLm lm, other({.width = 128}), shallow({.layers = 1});
  for (const Kind& kind : kinds()) {
    const std::vector<AdaptedSite> sites = Adapter(layer_sites(lm.model), kind.options).sites();
    EXPECT_EQ(sites.size(), 14u);
    EXPECT_THROW(Adapter(other.model.sites(), sites, "x"), Error) << kind.name;
    EXPECT_THROW(Adapter(shallow.model.sites(), sites, "x"), Error) << kind.name;
  }
}

// "o" is attn_output in GGUF, beside output, output_norm and attn_norm: nothing but it is trained, written or read.
TEST(AdapterKinds, FieldIssue17_TargetNamesMatchWholeComponents) {
  const TinyLm lm({.tied_head = false});
  for (const Kind& kind : kinds()) {
    Adapter adapter(select_sites(lm.model.sites(), {"o"}, 0), kind.options);
    train(lm.model, adapter, some_sequences(), plain_options(2, 1e-2));
    for (const ParameterStore::Slice& slice : adapter.parameters().slices())
      EXPECT_TRUE(slice.name.starts_with("layers.0.o.") || slice.name.starts_with("layers.1.o.")) << slice.name;
    for (const AdapterFormatRow& format : adapter_formats()) {
      if (!format_obstacle(format.format, adapter.sites()).empty()) continue;
      SCOPED_TRACE(fmt::format("{} {}", kind.name, format.name));
      const bool gguf = format.format == AdapterFormat::kGguf;
      const TempDir directory;
      const auto path = format.is_directory ? directory.path() : directory.path() / (gguf ? "x.gguf" : "x.safetensors");
      write_adapter(format.format, path, {adapter.sites(), "", {}}, base_of(lm.model));
      const auto weights = format.is_directory ? path / "adapter_model.safetensors" : path;
      std::vector<std::string> names;
      if (gguf) {
        const GgufFile file = GgufFile::open(path);
        for (const GgufTensor& tensor : file.tensors()) names.push_back(tensor.name);
      } else {
        const SafetensorsFile file = SafetensorsFile::open(weights);
        for (const SafetensorsTensor& tensor : file.tensors()) names.push_back(tensor.name);
      }
      const std::string component = gguf ? ".attn_output." : format.is_directory ? ".o_proj." : "_o_proj.";
      for (const std::string& name : names) EXPECT_NE(name.find(component), std::string::npos) << name;
      EXPECT_EQ(read_adapter(path, base_of(lm.model)).sites.size(), 2u);
      if (format.is_directory) {
        EXPECT_NE(read_file(path / "adapter_config.json").find("\"o_proj\""), std::string::npos);
      }

      // A name that differs in its last letter is not of this layer.
      std::string bytes = read_file(weights);
      bytes[bytes.find(component) + component.size() - 2] = 'x';
      write_file(weights, bytes);
      EXPECT_THROW(read_adapter(path, base_of(lm.model)), Error);
    }
  }
}

TEST(AdapterKinds, FieldIssue18_AllMatricesStartDifferent) {
  const TinyLm lm;
  for (const Kind& kind : kinds()) {
    Adapter adapter(layer_sites(lm.model), kind.options);
    std::set<std::vector<float>> starts;
    int drawn = 0;
    for (size_t i = 0; i < adapter.parameters().slices().size(); ++i) {
      const std::string& name = adapter.parameters().slices()[i].name;
      const float* const values = adapter.parameters().value(i);
      if (name.ends_with("magnitude") || values[0] == 0.0f) continue;
      ++drawn;
      starts.insert({values, values + std::min<int64_t>(4, adapter.parameters().slices()[i].shape.elements())});
    }
    EXPECT_GE(drawn, 14) << kind.name;
    EXPECT_EQ(static_cast<int>(starts.size()), drawn) << kind.name;
  }
}

// A mixture of kinds, as a file may hold: each site by its own.
TEST(AdapterKinds, KindsMayBeMixed) {
  const TinyLm lm;
  std::vector<AdaptedSite> mixed;
  for (const auto& [name, index] : {std::pair("q", 0), std::pair("v", 1), std::pair("down", 2)}) {
    Adapter one(layer_sites(lm.model, {name}), kinds()[static_cast<size_t>(index)].options);
    disturb(one);
    for (AdaptedSite& site : one.sites()) mixed.push_back(std::move(site));
  }
  Adapter adapter(lm.model.sites(), mixed, "x");
  const Recorder run = train(lm.model, adapter, some_sequences(), plain_options(3, 1e-3));
  EXPECT_LT(run.steps.back().loss, run.steps.front().loss);
}

TEST(AdapterKinds, PatternsGiveRankAndAlpha) {
  const TinyLm lm;
  AdapterOptions options{.rank = 4, .alpha = 8};
  options.ranks = SiteNumbers("--rank-pattern", "layers.1.q=2,q=3,*.d?wn=5");
  options.alphas = SiteNumbers("--alpha-pattern", "v_proj=1");
  options.rslora = true;
  for (const AdaptedSite& site : Adapter(layer_sites(lm.model), options).sites()) {
    const auto& lora = std::get<LoraFactors>(site.factors);
    const int64_t rank = site.site == "q" ? (site.layer == 1 ? 2 : 3) : site.site == "down" ? 5 : 4;
    EXPECT_EQ(lora.rank, rank) << site.layer << site.site;
    EXPECT_EQ(lora.alpha, static_cast<float>((site.site == "v" ? 1 : 8) * std::sqrt(static_cast<double>(rank))));
  }
  const auto refusal = [&](const std::string& text) -> std::string {
    try {
      options.ranks = SiteNumbers("--rank-pattern", text);
      Adapter(layer_sites(lm.model), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("q=2,lm_head=4").find("\"lm_head\" matches none"), std::string::npos);
  EXPECT_NE(refusal("layers.9.*=4").find("layers.9.*"), std::string::npos);
  EXPECT_NE(refusal("q=2.5").find("rank 2.5 of layers.0.q"), std::string::npos);
  for (const char* text : {"q", "q=", "q=x", "=3", "q=-1", "q=0"})
    EXPECT_NE(refusal(text).find("PATTERN=NUMBER"), std::string::npos) << text << ": " << refusal(text);
}

}  // namespace
}  // namespace patina::testing
