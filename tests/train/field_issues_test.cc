// What users of such trainers trip over, in the library: one test an issue. Those of data sets, file formats and the
// command line have theirs in the tests of these rooms, under the same kind of name.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/sha256.h"
#include "support/adapted.h"
#include "support/compare.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string sha256_of(const std::filesystem::path& path) {
  Sha256 hash;
  hash.update(read_file(path));
  return hash.hex_digest();
}

std::vector<size_t> all_of(const std::vector<Sequence>& sequences) {
  std::vector<size_t> which(sequences.size());
  for (size_t i = 0; i < which.size(); ++i) which[i] = i;
  return which;
}

// Loss and gradients of sequences in micro-batches.
struct LossAndGradient {
  double loss = 0;
  std::vector<double> gradient;
};

LossAndGradient in_micro_batches(const DecoderModel& model, Adapter& adapter, const std::vector<Sequence>& sequences,
                                 const std::vector<std::vector<size_t>>& micro_batches) {
  int64_t most = 0;
  for (const Sequence& sequence : sequences) most += static_cast<int64_t>(sequence.ids.size());
  ThreadPool pool(2);
  LossRunner runner(model, &adapter, loss_limits(sequences, most), GradientOptions{}, cpu_backend(), pool);
  std::span<float> gradients = adapter.parameters().gradients();
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  LossAndGradient result;
  MicroBatch batch;
  for (const std::vector<size_t>& which : micro_batches) {
    fill(batch, sequences, which);
    result.loss += runner.run(batch, 0.25f);
  }
  result.gradient.assign(gradients.begin(), gradients.end());
  return result;
}

void expect_same(const LossAndGradient& one, const LossAndGradient& other) {
  EXPECT_TRUE(one.loss > 0 && std::abs(one.loss - other.loss) <= 1e-5 * one.loss) << one.loss << " " << other.loss;
  const Comparison result = compare(one.gradient, other.gradient, {});
  EXPECT_TRUE(result.non_finite == 0 && result.max_expected > 0 && result.relative_norm <= 1e-5) << result.str();
}

TEST(FieldIssues, FieldIssue02_RowsThatAreNoWholeBlocksAreRefusedByName) {
  const TempDir directory;
  const auto path = directory.path() / "model.gguf";
  write_tiny_model(path, {.dtype = DType::kQ4_K});
  std::string bytes = read_file(path);
  const std::string tensor = "blk.1.ffn_up.weight";
  const size_t at = bytes.find(tensor) + tensor.size() + sizeof(uint32_t);  // behind the number of dimensions
  const uint64_t columns = 250;
  std::memcpy(bytes.data() + at, &columns, sizeof columns);
  directory.write("model.gguf", bytes);
  const std::string text = refusal([&] { DecoderModel::load(path); });
  EXPECT_NE(text.find("\"" + tensor + "\" has rows of 250 values, expected a multiple of 256"), std::string::npos)
      << text;
}

TEST(FieldIssues, FieldIssue04_UnsupportedArchitecturesAndTypesAreRefusedAtLoadByName) {
  const TempDir directory;
  const auto path = directory.path() / "model.gguf";
  write_tiny_model(path, {.architecture = "gizmo"});
  EXPECT_NE(refusal([&] { DecoderModel::load(path); }).find("\"gizmo\""), std::string::npos);
  write_tiny_model(path, {.dtype = DType::kI32});
  const std::string text = refusal([&] { DecoderModel::load(path); });
  EXPECT_NE(text.find("token_embd.weight has type I32"), std::string::npos) << text;
}

TEST(FieldIssues, FieldIssue05_AQ41FileIsTrainedInPlaceAndStaysAsItIs) {
  const TinyLm lm({.dtype = DType::kQ4_1, .tied_head = false});
  const std::string before = sha256_of(lm.path);
  const std::vector<Sequence> sequences = {random_sequence(9, 2, 0)};
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  ThreadPool pool(2);
  Trainer trainer = lm_trainer(lm.model, adapter, sequences, {}, plain_options(2, 1e-3), cpu_backend(), pool);
  EXPECT_EQ(trainer.plan().weights_bytes, static_cast<int64_t>(std::filesystem::file_size(lm.path)));
  // Whatever frozen numbers the graph reads lie in the map of the file; only the table of rope is made.
  const auto* map = lm.model.file().tensors().front().data - lm.model.file().tensors().front().offset_bytes;
  int in_place = 0;
  const Graph& graph = trainer.objective().graph();
  for (ValueId id = 0; id < graph.values(); ++id) {
    const Value& value = graph.value(id);
    if (value.kind != ValueKind::kFrozen || value.name == "rope") continue;
    const auto* data = static_cast<const std::byte*>(value.data);
    EXPECT_TRUE(data >= map && data + graph.maximum_bytes(id) <= map + lm.model.file().file_bytes()) << value.name;
    EXPECT_EQ(value.dtype, value.name.ends_with("norm") ? DType::kF32 : DType::kQ4_1) << value.name;
    ++in_place;
  }
  EXPECT_EQ(in_place, 2 * 9 + 3);
  Recorder recorder;
  trainer.run(recorder, [] { return false; });
  EXPECT_EQ(sha256_of(lm.path), before);
}

TEST(FieldIssues, FieldIssue08_AMaskedMicroBatchGivesNothing) {
  const TinyLm lm;
  const auto adapter = half_trained(layer_sites(lm.model));
  std::vector<Sequence> sequences = {random_sequence(12, 99, 0), random_sequence(7, 99, 1), random_sequence(6, 3, 2)};
  const LossAndGradient masked = in_micro_batches(lm.model, *adapter, sequences, {{0, 1}});
  EXPECT_EQ(masked.loss, 0.0);
  for (const double g : masked.gradient) ASSERT_EQ(g, 0.0);
  // Beside others it changes nothing.
  expect_same(in_micro_batches(lm.model, *adapter, sequences, {{0, 1, 2}}),
              in_micro_batches(lm.model, *adapter, sequences, {{2}}));
  expect_same(in_micro_batches(lm.model, *adapter, sequences, {{0}, {1}, {2}}),
              in_micro_batches(lm.model, *adapter, sequences, {{2}}));
  // A step of nothing else is a step of loss 0.
  sequences.pop_back();
  Adapter fresh(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  const Recorder run = train(lm.model, fresh, sequences, plain_options(1, 1e-3));
  EXPECT_EQ(run.steps.at(0).loss, 0.0);
  EXPECT_EQ(run.steps.at(0).grad_norm, 0.0);
  for (const AdaptedSite& pair : fresh.sites())
    for (const float b : lora(pair).b) ASSERT_EQ(b, 0.0f);
}

TEST(FieldIssues, FieldIssue12_PackedSequencesAreTheSumOfSeparateOnes) {
  for (const DType dtype : {DType::kF32, DType::kQ4_K}) {
    const TinyLm lm({.dtype = dtype});
    const auto adapter = half_trained(layer_sites(lm.model));
    const std::vector<Sequence> sequences = {random_sequence(12, 4, 0), random_sequence(2, 1, 1),
                                             random_sequence(33, 10, 2), random_sequence(5, 1, 3)};
    const LossAndGradient packed = in_micro_batches(lm.model, *adapter, sequences, {all_of(sequences)});
    expect_same(in_micro_batches(lm.model, *adapter, sequences, {{0}, {1}, {2}, {3}}), packed);
    expect_same(in_micro_batches(lm.model, *adapter, sequences, {{3, 1}, {2, 0}}), packed);
  }
}

// The mean is over the supervised tokens of the step, so a short micro-batch weighs by its tokens, not as one of two.
TEST(FieldIssues, FieldIssue13_LengthsThatDifferMuchAccumulateToTheOneBatch) {
  const TinyLm lm;
  const std::vector<Sequence> sequences = {random_sequence(3, 1, 0), random_sequence(300, 1, 1)};
  const auto one_step = [&](int64_t micro_tokens) {
    const auto adapter = half_trained(layer_sites(lm.model));
    LmTrainOptions options = plain_options(1, 1e-3);
    options.grad_clip = 0;
    options.micro_tokens = micro_tokens;
    const Recorder run = train(lm.model, *adapter, sequences, options);
    EXPECT_EQ(run.steps.at(0).supervised, 2 + 299);
    const std::span<const float> gradients = adapter->parameters().gradients();
    return LossAndGradient{run.steps[0].loss, {gradients.begin(), gradients.end()}};
  };
  expect_same(one_step(300), one_step(512));
}

TEST(FieldIssues, FieldIssue14_EveryTargetLearnsInTheFirstStep) {
  const TinyLm lm({.dtype = DType::kQ8_0});
  const std::vector<Sequence> sequences = {random_sequence(12, 2, 0), random_sequence(9, 2, 1)};
  for (const int segments : {1, 2}) {  // without and with recompute
    Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
    ThreadPool pool(2);
    LmTrainOptions options = plain_options(1, 1e-3);
    options.gradients.segments = segments;
    Trainer trainer = lm_trainer(lm.model, adapter, sequences, {}, options, cpu_backend(), pool);
    Recorder recorder;
    trainer.run(recorder, [] { return false; });
    ASSERT_EQ(adapter.sites().size(), 14u);
    for (const AdaptedSite& pair : adapter.sites()) {
      int64_t zeros = 0;
      for (const float b : lora(pair).b) zeros += b == 0.0f;
      EXPECT_LT(zeros, pair.out * lora(pair).rank / 100) << pair.layer << " " << pair.site;
    }
    const std::vector<GradientNorm> norms = trainer.gradient_norms();
    ASSERT_EQ(norms.size(), 28u);
    for (const GradientNorm& gradient : norms) {
      if (gradient.parameter.ends_with("lora_b"))
        EXPECT_GT(gradient.norm, 0.0) << gradient.parameter;
      else
        EXPECT_EQ(gradient.norm, 0.0) << gradient.parameter << ": B was zero";
    }
    EXPECT_TRUE(recorder.warnings.empty());
  }
}

// In layer 1, down is zero: gate and up have no effect and learn nothing.
TEST(FieldIssues, FieldIssue14_ATargetThatLearnsNothingIsReported) {
  const TempDir directory;
  const auto path = directory.path() / "model.gguf";
  write_tiny_model(path, {});
  std::string bytes = read_file(path);
  {
    const GgufFile file = GgufFile::open(path);
    const GgufTensor* down = file.find_tensor("blk.1.ffn_down.weight");
    std::fill_n(bytes.begin() + down->offset_bytes, down->bytes, '\0');
  }
  directory.write("model.gguf", bytes);
  const DecoderModel model = DecoderModel::load(path);
  const std::vector<Sequence> sequences = {random_sequence(12, 2, 0)};
  Adapter adapter(layer_sites(model, {"q", "gate", "up"}), {.rank = 2, .alpha = 4, .seed = 1});
  const Recorder run = train(model, adapter, sequences, plain_options(8, 1e-3));
  ASSERT_EQ(run.warnings.size(), 4u) << "A and B of gate and up, once";
  for (const char* parameter :
       {"layers.1.gate.lora_a", "layers.1.gate.lora_b", "layers.1.up.lora_a", "layers.1.up.lora_b"}) {
    bool named = false;
    for (const std::string& warning : run.warnings) named = named || warning.find(parameter) != std::string::npos;
    EXPECT_TRUE(named) << parameter;
  }
}

TEST(FieldIssues, FieldIssue15_AStepOfNothingChangesNothing) {
  const TinyLm lm({.dtype = DType::kQ4_1});
  const std::vector<Sequence> sequences = {random_sequence(20, 2, 0), random_sequence(9, 2, 1)};
  Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
  train(lm.model, adapter, sequences, plain_options(1, 1e-12));
  ThreadPool pool(2);
  const auto perplexity = [&](Adapter* with) {
    return std::exp(evaluate(lm.model, with, sequences, 512, cpu_backend(), pool).mean_loss());
  };
  const double base = perplexity(nullptr);
  EXPECT_TRUE(std::abs(perplexity(&adapter) - base) <= 1e-4 * base);
}

TEST(FieldIssues, FieldIssue16_AnAdapterOfAnotherModelIsRefused) {
  const TinyLm lm;
  Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
  write_adapter(AdapterFormat::kPeft, lm.directory(), {adapter.sites(), "", {}}, base_of(lm.model));
  write_adapter(AdapterFormat::kGguf, lm.directory() / "adapter.gguf", {adapter.sites(), "", {}}, base_of(lm.model));
  const auto on = [&](const TinyModel& options) {
    std::string texts;
    const TinyLm other(options);
    for (const auto& file : {lm.directory(), lm.directory() / "adapter.gguf"}) {
      const std::string text =
          refusal([&] { Adapter(other.model.sites(), read_adapter(file, base_of(other.model)).sites, file.string()); });
      EXPECT_NE(text, "accepted") << file;
      texts += text + "\n";
    }
    return texts;
  };
  const std::string fewer = on({.layers = 1});
  EXPECT_NE(fewer.find("adapts layers.1.q; "), std::string::npos) << fewer;
  EXPECT_NE(fewer.find("the model has 1 layers"), std::string::npos) << fewer;
  EXPECT_NE(on({.feed_forward = 256}).find("layers.0.gate adapts a weight [512, 256] where the model has [256, 256]"),
            std::string::npos);
  EXPECT_NE(on({.width = 128}).find("layers.0.q"), std::string::npos);
  AdapterBase other = base_of(lm.model);
  other.architecture = "gizmo";
  const std::string text = refusal([&] { read_adapter(lm.directory() / "adapter.gguf", other); });
  EXPECT_NE(text.find("gizmo"), std::string::npos) << text;
}

// A loss that left out the adapter's change of the head would be of half the adapter.
TEST(FieldIssues, FieldIssue16_AnAdapterOfTheHeadIsNotLeftOutOfTheLoss) {
  const TinyLm lm({.tied_head = false});
  const std::vector<Sequence> sequences = {random_sequence(20, 2, 0)};
  const auto adapter = half_trained(lm.model.sites()), without = half_trained(layer_sites(lm.model));
  ThreadPool pool(2);
  const auto loss = [&](Adapter& used) {
    return evaluate(lm.model, &used, sequences, 512, cpu_backend(), pool).mean_loss();
  };
  EXPECT_GT(std::abs(loss(*adapter) - loss(*without)), 1e-3);
}

TEST(FieldIssues, FieldIssue17_TargetNamesMatchWholeComponents) {
  const TinyLm lm({.tied_head = false});
  const auto names = [&](const std::set<std::string>& wanted) {
    std::set<std::string> found;
    for (const Site& site : select_sites(lm.model.sites(), wanted, 0)) found.insert(site.name);
    return found;
  };
  EXPECT_EQ(names({"q"}), std::set<std::string>{"q"});
  EXPECT_EQ(names({"o"}), std::set<std::string>{"o"}) << "attn_output, not output";
  EXPECT_EQ(names({"lm_head"}), std::set<std::string>{"lm_head"}) << "output, not attn_output";
  // No norm is a target, though its name begins as one.
  Adapter adapter(layer_sites(lm.model), {.rank = 2, .alpha = 4, .seed = 1});
  for (const AdaptedSite& pair : adapter.sites()) EXPECT_EQ(pair.site.find("norm"), std::string::npos);
  EXPECT_EQ(adapter.sites().size(), 14u);
}

TEST(FieldIssues, FieldIssue18_AllMatricesStartDifferent) {
  const TinyLm lm;
  Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
  const std::vector<AdaptedSite> pairs = adapter.sites();
  for (size_t i = 0; i < pairs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const size_t common = std::min(lora(pairs[i]).a.size(), lora(pairs[j]).a.size());
      size_t same = 0;
      for (size_t e = 0; e < common; ++e) same += lora(pairs[i]).a[e] == lora(pairs[j]).a[e];
      EXPECT_LT(same, common / 100) << pairs[i].layer << pairs[i].site << " " << pairs[j].layer << pairs[j].site;
    }
}

TEST(FieldIssues, FieldIssue20_TheLossInChunksIsTheWholeLoss) {
  const TinyLm lm({.dtype = DType::kQ8_0});
  const Sequence whole = random_sequence(90, 0, 5);
  const auto adapter = half_trained(layer_sites(lm.model));
  const LossAndGradient expected = in_micro_batches(lm.model, *adapter, {whole}, {{0}});
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{256}, whole.ids.size()}) {
    std::vector<Sequence> parts;  // each with the labels of a chunk
    for (size_t begin = 0; begin < whole.ids.size(); begin += chunk) {
      Sequence& part = parts.emplace_back(whole);
      for (size_t i = 0; i < part.ids.size(); ++i)
        if (i < begin || i >= begin + chunk) part.supervised[i] = false;
    }
    std::vector<std::vector<size_t>> one_by_one;
    for (size_t i = 0; i < parts.size(); ++i) one_by_one.push_back({i});
    expect_same(in_micro_batches(lm.model, *adapter, parts, one_by_one), expected);
  }
}

TEST(FieldIssues, FieldIssue25_ThreadsChangeNothing) {
  EXPECT_GE(default_threads(), 1);
  const TinyLm lm({.dtype = DType::kQ8_0});
  const std::vector<Sequence> sequences = {random_sequence(40, 2, 0), random_sequence(9, 2, 1)};
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
    train(lm.model, adapter, sequences, plain_options(3, 1e-3), threads);
    const std::span<const float> values = adapter.parameters().values();
    if (first.empty()) first.assign(values.begin(), values.end());
    EXPECT_TRUE(std::equal(values.begin(), values.end(), first.begin(), first.end())) << threads;
  }
}

}  // namespace
}  // namespace patina::testing
