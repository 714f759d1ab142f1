// Text generation with a key-value cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/function_ref.h"
#include "graph/executor.h"
#include "model/decoder_lm.h"

namespace patina {

struct Sampling {
  double temperature = 0.0;  // 0: the most likely token
  double top_p = 1.0;        // only the most likely tokens that together reach this probability
  uint64_t seed = 42;
};

// The next token from logits [V]; `index` counts the draws of one generation. Ties go to the lower
// id. Error(kNonFinite) where the largest logit is not finite.
int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t index);

class Generator {
 public:
  // cache_tokens: prompt and answer together at most. Without adapter (null) the base model. `stream_weights`: read
  // ahead and release the pages of frozen weights (graph/stream.h), which takes reading all of them for each token.
  Generator(const DecoderModel& model, Adapter* adapter, const Backend& backend, ThreadPool& pool, int64_t cache_tokens,
            bool stream_weights = false);

  // Appends tokens (at least one) and returns the logits [V] after the last one, valid until the next call.
  // Error(kUsage) where the cache would overflow.
  std::span<const float> feed(std::span<const int32_t> tokens);
  // Forgets all tokens.
  void reset() { length_ = 0; }
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  int64_t memory_bytes() const;  // that it takes: cache, activations and scratch
  int64_t window_bytes() const;  // of streamed weights, resident at one time

  // Answers a prompt with at most max_tokens tokens; stops before a token that is_end() accepts, or where on_token
  // returns false.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, int64_t max_tokens, const Sampling& sampling,
                                FunctionRef<bool(int32_t)> is_end, FunctionRef<bool(int32_t)> on_token);

 private:
  int64_t capacity_, length_ = 0;
  std::unique_ptr<CacheGraph> graph_;
  std::unique_ptr<WeightStream> stream_;
  std::unique_ptr<Executor> executor_;
  int64_t prelude_bytes_ = 0;
  std::vector<int32_t> tokens_, positions_;
};

}  // namespace patina
