// What a language model answers to a few prompts while its adapter is trained.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "cli/common.h"
#include "cli/prompts.h"
#include "cli/run_observer.h"
#include "infer/generator.h"

namespace patina {

struct SampleOptions {
  int64_t answer_tokens;  // at most
  Sampling sampling;
};

class LmSamples {
 public:
  // Error(kUsage) or Error(kData) naming the prompt that is empty or does not fit into the model's context.
  LmSamples(const DecoderModel& model, Adapter& adapter, const Conversation& conversation, std::vector<Prompt> prompts,
            const Tokenizer& tokenizer, SampleOptions options, ThreadPool& pool);

  // The answers of the model with the adapter as it is now, beside those without it; with the same random numbers.
  // None where a signal asks the run to end.
  std::vector<SampleAnswer> take();

  // From now on frozen weights are streamed.
  void stream_weights() { stream_weights_ = true; }
  // Taken while it takes samples; and of streamed weights, resident at one time.
  int64_t memory_bytes() const { return memory_bytes_; }
  int64_t window_bytes() const { return window_bytes_; }

 private:
  std::vector<std::string> answers(Adapter* adapter) const;

  const DecoderModel& model_;
  Adapter& adapter_;
  const Conversation& conversation_;
  std::vector<Prompt> prompts_;
  const Tokenizer& tokenizer_;
  SampleOptions options_;
  ThreadPool& pool_;
  std::vector<std::vector<int32_t>> prompt_ids_;
  int64_t cache_tokens_, memory_bytes_, window_bytes_;
  bool stream_weights_ = false;
  std::vector<std::string> base_answers_;  // once taken: the base does not change
};

}  // namespace patina
