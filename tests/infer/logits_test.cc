// Logits of the real model against llama.cpp's, teacher-forced over one sequence of 1,024 tokens. The golden files and
// their layout: tools/make_logit_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "base/file.h"
#include "graph/executor.h"
#include "model/decoder_lm.h"

namespace patina {
namespace {

const std::filesystem::path kSource = PATINA_SOURCE_DIR;
const std::filesystem::path kModel = kSource / "models/SmolLM2-135M-Instruct.Q4_1.gguf";

struct Golden {
  explicit Golden(const std::string& name) : bytes(read_file(kSource / "tests/infer/goldens" / name)) {
    const auto number = [&](size_t offset) {
      uint32_t value = 0;
      std::memcpy(&value, bytes.data() + offset, sizeof value);
      return static_cast<size_t>(value);
    };
    EXPECT_EQ(bytes.substr(0, 8), "PATLOGIT");
    positions = number(12);
    top = number(16);
    std::memcpy(&mean_nll, bytes.data() + 24, sizeof mean_nll);
    const char* at = bytes.data() + 32;
    const auto take = [&](auto& values, size_t count) {
      values.resize(count);
      std::memcpy(values.data(), at, count * sizeof values[0]);
      at += count * sizeof values[0];
    };
    take(tokens, positions);
    take(ids, positions * top);
    take(log_probabilities, positions * top);
    take(rest, positions);
    EXPECT_EQ(at, bytes.data() + bytes.size());
  }

  std::string bytes;
  size_t positions = 0, top = 0;
  double mean_nll = 0.0;
  std::vector<uint16_t> tokens, ids;
  std::vector<float> log_probabilities, rest;
};

struct Agreement {
  double top1 = 0.0, mean_kl = 0.0, mean_nll = 0.0;
};

// KL divergence of ours from the golden's, over its kept tokens and one bucket for all others.
Agreement compare(const Golden& golden) {
  constexpr int64_t kRows = 64;
  const DecoderModel model = DecoderModel::load(kModel);
  ThreadPool pool(default_threads());
  const int64_t positions = static_cast<int64_t>(golden.positions);
  const auto built = build_cache_graph(model, nullptr, positions, kRows, kRows);
  Executor executor(built->graph, cpu_backend(), pool);
  Agreement agreement;
  for (int64_t start = 0; start < positions; start += kRows) {
    std::vector<int32_t> tokens(golden.tokens.begin() + start, golden.tokens.begin() + start + kRows), places(kRows),
        rows(kRows);
    std::iota(places.begin(), places.end(), static_cast<int32_t>(start));
    std::iota(rows.begin(), rows.end(), 0);
    int32_t q_offsets[] = {0, kRows}, kv_offsets[] = {0, static_cast<int32_t>(start + kRows)},
            position = static_cast<int32_t>(start);
    executor.bind(built->tokens, tokens.data());
    executor.bind(built->positions, places.data());
    executor.bind(built->q_offsets, q_offsets);
    executor.bind(built->kv_offsets, kv_offsets);
    executor.bind(built->first, &position);
    executor.bind(built->position, &position);
    executor.bind(built->rows, rows.data());
    const int64_t sizes[] = {kRows, kRows};
    executor.run(sizes);
    const Tensor logits = executor.tensor(built->logits);
    for (int64_t r = 0; r < kRows; ++r) {
      const float* row = logits.f32() + r * logits.strides[0];
      const double greatest = static_cast<double>(*std::max_element(row, row + logits.shape[1]));
      double sum = 0.0;
      for (int64_t v = 0; v < logits.shape[1]; ++v) sum += std::exp(static_cast<double>(row[v]) - greatest);
      const auto log_probability = [&](int64_t v) { return static_cast<double>(row[v]) - greatest - std::log(sum); };
      const size_t at = static_cast<size_t>(start + r), first = at * golden.top;
      agreement.top1 += std::max_element(row, row + logits.shape[1]) - row == golden.ids[first] ? 1.0 : 0.0;
      double kl = 0.0, kept = 0.0;
      for (size_t k = first; k < first + golden.top; ++k) {
        const double theirs = static_cast<double>(golden.log_probabilities[k]), ours = log_probability(golden.ids[k]);
        kl += std::exp(theirs) * (theirs - ours);
        kept += std::exp(ours);
      }
      const double rest = static_cast<double>(golden.rest[at]);
      kl += std::exp(rest) * (rest - std::log(std::max(1.0 - kept, 1e-30)));
      agreement.mean_kl += kl;
      if (at + 1 < golden.positions) agreement.mean_nll -= log_probability(golden.tokens[at + 1]);
    }
  }
  agreement.top1 /= static_cast<double>(positions);
  agreement.mean_kl /= static_cast<double>(positions);
  agreement.mean_nll /= static_cast<double>(positions - 1);
  return agreement;
}

TEST(Logits, EqualLlamaCppOnAnF32Copy) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is missing: scripts/fetch-model.sh fetches it";
  // Decoding Q4_1 gives exactly the weights of the F32 copy, and arithmetic is F32 either way: the file itself serves.
  const Golden golden("smollm2_f32.bin");
  const Agreement agreement = compare(golden);
  RecordProperty("top1", std::to_string(agreement.top1));
  RecordProperty("mean_kl", std::to_string(agreement.mean_kl));
  EXPECT_GE(agreement.top1, 0.995);
  EXPECT_TRUE(std::abs(agreement.mean_kl) <= 1e-5) << agreement.mean_kl;
  EXPECT_NEAR(agreement.mean_nll, golden.mean_nll, 1e-4);
}

TEST(Logits, FollowLlamaCppOnTheQuantisedFile) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is missing: scripts/fetch-model.sh fetches it";
  // llama.cpp rounds activations to 8 bits here, so it only comes near.
  const Golden golden("smollm2_q4_1.bin");
  const Agreement agreement = compare(golden);
  EXPECT_GE(agreement.top1, 0.97);
  EXPECT_TRUE(std::abs(std::exp(agreement.mean_nll - golden.mean_nll) - 1.0) <= 0.005)
      << agreement.mean_nll << " " << golden.mean_nll;
}

}  // namespace
}  // namespace patina
