// From training through the exported files to generation.
#include <gtest/gtest.h>

#include "infer/generator.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

TEST(Trained, LearnsATaskAndAnswersFromItsFiles) {
  const TinyLm lm({.dtype = DType::kQ8_0});
  const auto tokenizer = tokenizer_of(lm.model);
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"sky", "blue"}, {"grass", "green"}, {"coal", "black"}, {"snow", "white"}};
  std::vector<Sequence> sequences;
  for (const auto& [question, answer] : facts) sequences.push_back(pair_sequence(*tokenizer, question, answer));
  Adapter adapter(layer_sites(lm.model), {.rank = 8, .alpha = 16, .seed = 1});
  const Recorder run = train(lm.model, adapter, sequences, plain_options(40, 2e-3));
  ASSERT_EQ(run.steps.size(), 40u);
  EXPECT_GT(run.steps.front().loss, 4.0);
  EXPECT_LT(run.steps.back().loss, 0.05);
  EXPECT_TRUE(run.warnings.empty()) << run.warnings.front();

  write_adapter(AdapterFormat::kPeft, lm.directory(), {adapter.sites(), "", {}}, base_of(lm.model));
  write_adapter(AdapterFormat::kGguf, lm.directory() / "adapter.gguf", {adapter.sites(), "", {}}, base_of(lm.model));
  ThreadPool pool(2);
  for (const auto& file : {lm.directory(), lm.directory() / "adapter.gguf"}) {
    Adapter read(lm.model.sites(), read_adapter(file, base_of(lm.model)).sites, "file");
    Generator generator(lm.model, &read, cpu_backend(), pool, 64);
    for (const auto& [question, answer] : facts) {
      std::vector<int32_t> prompt = tokenizer->encode(question, false);
      prompt.push_back(tokenizer->find("<|im_end|>"));
      generator.reset();
      const std::vector<int32_t> got = generator.generate(
          prompt, 20, {}, [&](int32_t id) { return tokenizer->is_end(id); }, [](int32_t) { return true; });
      EXPECT_EQ(tokenizer->decode(got), answer) << file;
    }
  }
}

TEST(Trained, FieldIssue15_ReloadedFilesGiveTheLogitsOfTheRun) {
  const TinyLm lm({.dtype = DType::kQ4_1});
  const std::vector<Sequence> sequences = {random_sequence(20, 2, 0), random_sequence(9, 2, 1)};
  Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 1});
  train(lm.model, adapter, sequences, plain_options(5, 2e-3));
  write_adapter(AdapterFormat::kPeft, lm.directory(), {adapter.sites(), "", {}}, base_of(lm.model));
  write_adapter(AdapterFormat::kGguf, lm.directory() / "adapter.gguf", {adapter.sites(), "", {}}, base_of(lm.model));
  ThreadPool pool(2);
  const auto logits = [&](Adapter* with) {
    Generator generator(lm.model, with, cpu_backend(), pool, 32);
    const std::span<const float> last = generator.feed(sequences[0].ids);
    return std::vector<float>(last.begin(), last.end());
  };
  const std::vector<float> in_process = logits(&adapter);
  EXPECT_NE(in_process, logits(nullptr)) << "the adapter has an effect";
  for (const auto& file : {lm.directory(), lm.directory() / "adapter.gguf"}) {
    Adapter read(lm.model.sites(), read_adapter(file, base_of(lm.model)).sites, file.string());
    EXPECT_EQ(in_process, logits(&read)) << file;
  }
}

}  // namespace
}  // namespace patina::testing
