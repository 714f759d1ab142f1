#include "cli/lm_samples.h"

#include <algorithm>

#include "cli/interrupt.h"

namespace patina {

LmSamples::LmSamples(const DecoderModel& model, Adapter& adapter, const Conversation& conversation,
                     std::vector<Prompt> prompts, const Tokenizer& tokenizer, SampleOptions options, ThreadPool& pool)
    : model_(model),
      adapter_(adapter),
      conversation_(conversation),
      prompts_(std::move(prompts)),
      tokenizer_(tokenizer),
      options_(options),
      pool_(pool),
      prompt_ids_(conversation.prompt_ids(prompts_)) {
  const int64_t most = model.config().context_tokens;
  check_prompts_fit(prompts_, prompt_ids_, most, false);
  cache_tokens_ = std::min(most, longest_prompt(prompt_ids_) + options_.answer_tokens);
  const Generator generator(model, &adapter, cpu_backend(), pool, cache_tokens_, true);
  memory_bytes_ = generator.memory_bytes();
  window_bytes_ = generator.window_bytes();
}

// One generator at a time, and none between: then only its peak is taken, and DoRA's norms are those of now.
std::vector<std::string> LmSamples::answers(Adapter* adapter) const {
  Generator generator(model_, adapter, cpu_backend(), pool_, cache_tokens_, stream_weights_);
  std::vector<std::string> texts;
  for (const std::vector<int32_t>& prompt : prompt_ids_) {
    generator.reset();
    const std::vector<int32_t> ids = generator.generate(
        prompt, options_.answer_tokens, options_.sampling, [&](int32_t token) { return tokenizer_.is_end(token); },
        [](int32_t) { return interrupt_signal() == 0; });
    texts.push_back(conversation_.answer_text(ids));
  }
  return texts;
}

std::vector<SampleAnswer> LmSamples::take() {
  if (base_answers_.empty()) base_answers_ = answers(nullptr);
  const std::vector<std::string> texts = answers(&adapter_);
  if (interrupt_signal() != 0) return {};  // what was answered since is cut off
  std::vector<SampleAnswer> taken;
  for (size_t i = 0; i < texts.size(); ++i) taken.push_back({prompts_[i].text, texts[i], base_answers_[i]});
  return taken;
}

}  // namespace patina
