#include "infer/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference_backend.h"
#include "support/compare.h"
#include "support/tiny_lm.h"

namespace patina::testing {
namespace {

constexpr auto kNever = [](int32_t) { return false; };
constexpr auto kGoOn = [](int32_t) { return true; };

std::vector<int32_t> random_tokens(int count) {
  const RandomStream random(5, RandomUse::kTest, 0);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random.below(260, static_cast<uint64_t>(i))));
  return tokens;
}

std::vector<double> doubles(std::span<const float> numbers) { return {numbers.begin(), numbers.end()}; }

// Between ways of computing the same logits: sums in another order, through two layers.
void expect_same_logits(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  const Comparison result = compare(got, expected, {});
  EXPECT_TRUE(result.non_finite == 0 && result.max_expected > 0.1 && result.relative_norm <= 1e-5)
      << what << ": " << result.str();
}

class GeneratorTest : public ::testing::Test {
 protected:
  Generator make(int64_t tokens, const Backend& backend = cpu_backend()) {
    return Generator(lm_.model, adapter_.get(), backend, pool_, tokens);
  }
  std::vector<double> from_scratch(std::span<const int32_t> tokens) {
    Generator generator = make(static_cast<int64_t>(tokens.size()));
    return doubles(generator.feed(tokens));
  }

  TinyLm lm_{{.dtype = DType::kQ8_0}};
  std::unique_ptr<Adapter> adapter_ = half_trained(layer_sites(lm_.model));
  ThreadPool pool_{2};
};

TEST_F(GeneratorTest, CacheGivesTheLogitsOfTheWholeText) {
  const std::vector<int32_t> tokens = random_tokens(40);
  Generator generator = make(64);
  size_t at = 0;
  for (const size_t count : {1u, 5u, 1u, 1u, 17u, 2u, 13u}) {
    const std::vector<double> logits = doubles(generator.feed(std::span(tokens).subspan(at, count)));
    at += count;
    EXPECT_EQ(generator.length(), static_cast<int64_t>(at));
    expect_same_logits(logits, from_scratch(std::span(tokens).first(at)), std::to_string(at));
  }
  ASSERT_EQ(at, tokens.size());
  Generator other = make(64, reference_backend());
  expect_same_logits(doubles(other.feed(tokens)), from_scratch(tokens), "reference backend");
}

// The graph of training and the graph of generation are one model: -log p of the labels is the loss.
TEST_F(GeneratorTest, LogitsGiveTheLossOfTraining) {
  const std::vector<int32_t> tokens = random_tokens(12);
  const auto count = static_cast<int64_t>(tokens.size()) - 1;
  auto graph = build_loss_graph(lm_.model, adapter_.get(), {count, 1, count}, std::nullopt);
  Executor executor(graph->graph, cpu_backend(), pool_);
  std::vector<int32_t> inputs(tokens.begin(), tokens.end() - 1), labels(tokens.begin() + 1, tokens.end());
  std::vector<int32_t> rows(inputs.size());
  std::iota(rows.begin(), rows.end(), 0);
  int32_t offsets[] = {0, static_cast<int32_t>(count)}, first[] = {0};
  executor.bind(graph->tokens, inputs.data());
  executor.bind(graph->positions, rows.data());
  executor.bind(graph->offsets, offsets);
  executor.bind(graph->first, first);
  executor.bind(graph->supervised[0].rows, rows.data());
  executor.bind(graph->supervised[0].labels, labels.data());
  executor.run(std::vector<int64_t>{count, 2, 1, count});
  const double loss = static_cast<double>(executor.tensor(graph->loss).f32()[0]);

  Generator generator = make(64);
  double expected = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> logits = doubles(generator.feed({&inputs[i], 1}));
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    expected += std::log(sum) - logits[static_cast<size_t>(labels[i])];
  }
  EXPECT_TRUE(std::abs(loss - expected) <= 1e-5 * expected) << loss << " " << expected;
}

TEST_F(GeneratorTest, LongPromptsGoInChunks) {
  const std::vector<int32_t> tokens = random_tokens(600);  // more than two chunks
  Generator at_once = make(600), piecewise = make(600);
  const std::vector<double> logits = doubles(at_once.feed(tokens));
  std::span<const float> last;
  for (size_t at = 0; at < tokens.size(); at += 50) last = piecewise.feed(std::span(tokens).subspan(at, 50));
  expect_same_logits(logits, doubles(last), "chunks of 50");
}

TEST_F(GeneratorTest, ResetForgets) {
  const std::vector<int32_t> tokens = random_tokens(9);
  Generator generator = make(32);
  const std::vector<double> first = doubles(generator.feed(tokens));
  generator.feed(random_tokens(20));
  generator.reset();
  EXPECT_EQ(generator.length(), 0);
  EXPECT_EQ(doubles(generator.feed(tokens)), first);
}

TEST_F(GeneratorTest, ContextThatOverflowsIsAnError) {
  Generator generator = make(8);
  generator.feed(random_tokens(6));
  try {
    generator.feed(random_tokens(3));
    FAIL() << "9 tokens in 8";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kUsage);
    EXPECT_STREQ(error.what(), "9 tokens do not fit into a context of 8; shorten the prompt or raise --context");
  }
  EXPECT_EQ(generator.length(), 6) << "nothing was taken in";
  generator.feed(random_tokens(2));
}

TEST_F(GeneratorTest, AnswersEndWhereTheyShould) {
  const std::vector<int32_t> prompt = random_tokens(5);
  Generator generator = make(32);
  const std::vector<int32_t> whole = generator.generate(prompt, 12, {}, kNever, kGoOn);
  ASSERT_EQ(whole.size(), 12u);

  generator.reset();
  const int32_t end = whole[7];
  const auto stop = static_cast<size_t>(std::find(whole.begin(), whole.end(), end) - whole.begin());
  std::vector<int32_t> seen;
  const std::vector<int32_t> ended = generator.generate(
      prompt, 12, {}, [&](int32_t token) { return token == end; },
      [&](int32_t token) {
        seen.push_back(token);
        return true;
      });
  EXPECT_EQ(ended, std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(stop)));
  EXPECT_EQ(seen, ended) << "the end marker is not part of the answer";

  generator.reset();
  int left = 3;
  EXPECT_EQ(generator.generate(prompt, 12, {}, kNever, [&](int32_t) { return --left > 0; }).size(), 3u);
  generator.reset();
  EXPECT_TRUE(generator.generate(prompt, 0, {}, kNever, kGoOn).empty());
  Generator small = make(8);
  EXPECT_EQ(small.generate(prompt, 12, {}, kNever, kGoOn).size(), 4u) << "three in the cache, one after it";
}

TEST_F(GeneratorTest, GreedyIsTheMostLikelyTokenAndSeedsDecideTheRest) {
  const std::vector<int32_t> prompt = random_tokens(5);
  Generator generator = make(32);
  const auto answer = [&](const Sampling& sampling) {
    generator.reset();
    return generator.generate(prompt, 10, sampling, kNever, kGoOn);
  };
  std::vector<int32_t> text = prompt, expected;
  for (int i = 0; i < 10; ++i) {
    const std::vector<double> logits = from_scratch(text);
    expected.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    text.push_back(expected.back());
  }
  EXPECT_EQ(answer({}), expected);
  EXPECT_EQ(answer({.temperature = 1, .seed = 3}), answer({.temperature = 1, .seed = 3}));
  EXPECT_NE(answer({.temperature = 1, .seed = 3}), answer({.temperature = 1, .seed = 4}));
}

// Share of each token in many draws.
std::vector<double> shares(const std::vector<float>& logits, const Sampling& sampling) {
  constexpr uint64_t kDraws = 20000;
  std::vector<double> share(logits.size());
  for (uint64_t i = 0; i < kDraws; ++i) share[static_cast<size_t>(sample(logits, sampling, i))] += 1;
  for (double& count : share) count /= kDraws;
  return share;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& expected) {
  // Five standard deviations of a share in 20,000 draws.
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(std::abs(got[i] - expected[i]) <= 5 * std::sqrt(expected[i] * (1 - expected[i]) / 20000))
        << i << ": " << got[i] << ", expected " << expected[i];
}

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

TEST(Sample, FollowsTheSoftmax) {
  expect_shares(shares(kLogits, {.temperature = 1}), {0.1, 0.4, 0.2, 0.3});
  // At temperature 1/2, probabilities are squared: 1, 16, 4, 9 of 30.
  expect_shares(shares(kLogits, {.temperature = 0.5}), {1 / 30.0, 16 / 30.0, 4 / 30.0, 9 / 30.0});
}

TEST(Sample, TopPKeepsTheFewestTokensThatReachIt) {
  expect_shares(shares(kLogits, {.temperature = 1, .top_p = 0.65}), {0, 4 / 7.0, 0, 3 / 7.0});
  expect_shares(shares(kLogits, {.temperature = 1, .top_p = 0.75}), {0, 4 / 9.0, 2 / 9.0, 3 / 9.0});
  expect_shares(shares(kLogits, {.temperature = 1, .top_p = 0.3}), {0, 1, 0, 0});
  expect_shares(shares(kLogits, {.temperature = 1, .top_p = 0}), {0, 1, 0, 0});
}

TEST(Sample, TiesGoToTheLowerId) {
  const std::vector<float> ties = {1, 5, 5, 2, 5};
  EXPECT_EQ(sample(ties, {}, 0), 1);
  expect_shares(shares(ties, {.temperature = 1, .top_p = 0.5}), {0, 0.5, 0.5, 0, 0});
}

TEST(Sample, ExtremeLogitsAndTemperatures) {
  EXPECT_EQ(sample(std::vector<float>{-INFINITY, 3, -INFINITY}, {.temperature = 1}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-1e30f, 0, 1e30f}, {.temperature = 1}, 0), 2);
  EXPECT_EQ(sample(std::vector<float>{1, 2, 3}, {.temperature = 1e-300}, 0), 2);
  expect_shares(shares({1, 2, 3, 4}, {.temperature = 1e300}), {0.25, 0.25, 0.25, 0.25});
}

TEST(Sample, LogitsThatAreNotFiniteAreRefused) {
  const std::vector<float> logits(3, std::numeric_limits<float>::quiet_NaN());
  for (const double temperature : {0.0, 1.0}) EXPECT_THROW(sample(logits, {temperature, 1.0, 1}, 0), Error);
}

TEST(Sample, SeedAndIndexDecide) {
  int differ_by_seed = 0, differ_by_index = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Sampling sampling{.temperature = 1, .seed = 1};
    EXPECT_EQ(sample(kLogits, sampling, i), sample(kLogits, sampling, i));
    differ_by_seed += sample(kLogits, sampling, i) != sample(kLogits, {.temperature = 1, .seed = 2}, i);
    differ_by_index += sample(kLogits, sampling, i) != sample(kLogits, sampling, i + 1);
  }
  EXPECT_GT(differ_by_seed, 40);
  EXPECT_GT(differ_by_index, 40);
}

}  // namespace
}  // namespace patina::testing
