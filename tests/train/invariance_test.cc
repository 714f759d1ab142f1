// What must not change what a run of twenty steps makes: threads, recompute, where weights lie in memory, and the
// architecture of the machine, to the bit; the size of micro-batches, but for rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "base/sha256.h"
#include "support/tiny_run.h"

namespace patina::testing {
namespace {

// Sequences of very different lengths.
std::vector<Sequence> sequences() {
  std::vector<Sequence> all;
  for (uint32_t i = 0; i < 12; ++i) all.push_back(random_sequence(5 + static_cast<int>(i * i) % 90, 2, i));
  return all;
}

struct Run {
  DType dtype = DType::kQ4_K;
  int threads = 2;
  int segments = 1;
  bool stream = false;
  int64_t micro_tokens = 0;
};

std::vector<float> trained(const Run& run) {
  const TinyLm lm({.dtype = run.dtype, .layers = 3});
  const std::vector<Sequence> data = sequences();
  Adapter adapter(layer_sites(lm.model), {.rank = 4, .alpha = 8, .seed = 3});
  LmTrainOptions options = plain_options(20, 1e-3);
  options.batch_tokens = 256;
  options.micro_tokens = run.micro_tokens;
  options.gradients.segments = run.segments;
  options.stream_weights = run.stream;
  train(lm.model, adapter, data, options, run.threads);
  const std::span<const float> values = adapter.parameters().values();
  return {values.begin(), values.end()};
}

TEST(Invariance, ThreadsRecomputeAndStreamingChangeNoBit) {
  for (const DType dtype : {DType::kBF16, DType::kQ4_K}) {
    const std::vector<float> plain = trained({.dtype = dtype, .threads = 1});
    for (const int threads : {1, 2, 3})
      for (const int segments : {1, 2, 3})
        EXPECT_TRUE(trained({dtype, threads, segments, threads == 2}) == plain)
            << name(dtype) << ", " << threads << " threads, " << segments << " segments";
  }
}

TEST(Invariance, MicroBatchesChangeRoundingOnly) {
  const std::vector<float> whole = trained({});
  for (const int64_t tokens : {95, 128, 200}) {
    const std::vector<float> parts = trained({.micro_tokens = tokens});
    double difference = 0, norm = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      difference += std::pow(double{parts[i]} - double{whole[i]}, 2);
      norm += std::pow(double{whole[i]}, 2);
    }
    EXPECT_TRUE(std::sqrt(difference / norm) <= 1e-5) << tokens << ": " << std::sqrt(difference / norm);
  }
}

// Recorded on x86-64 with AVX-512. The portable kernels have no fused multiply-add and so bits of their own.
TEST(Invariance, EveryMachineGivesTheSameBytes) {
  for (const std::string& isa : cpu_isas()) {
    if (isa == "portable") continue;
    use_isa(isa);
    const std::vector<float> values = trained({});
    Sha256 hash;
    hash.update(std::as_bytes(std::span(values)));
    EXPECT_EQ(hash.hex_digest(), "ec68707a8c7a336ea28409fc0dd5d991c77e760ae1ef6538ec5fbb92b1feb8e3") << isa;
  }
  use_isa("");
}

}  // namespace
}  // namespace patina::testing
