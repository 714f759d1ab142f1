// Prompts, and how they become tokens and tokens text again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/tokenizer.h"

namespace patina {

struct Prompt {
  std::string text, where;  // FILE:LINE, or empty for --prompt
};
// A file with a JSON object with "prompt" on each line. Error(kData) naming file and line.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

// Turns prompts into token ids and ids into text, as a chat or as plain text.
class Conversation {
 public:
  // A chat, unless `raw` or where the model has no chat format and none is chosen. Error(kUsage) for a system message
  // without a chat format. `tokenizer` must outlive it.
  Conversation(const Tokenizer& tokenizer, bool raw, std::string system, const std::string& chat_template);

  // Error(kUsage) or Error(kData) naming the prompt that is empty.
  std::vector<std::vector<int32_t>> prompt_ids(std::span<const Prompt> prompts) const;
  // A plain text goes on with the space of its next word; an answer begins without one.
  std::string answer_text(const std::vector<int32_t>& ids) const;

 private:
  std::vector<int32_t> prompt_ids(const std::string& prompt) const;

  const Tokenizer& tokenizer_;
  std::string system_;
  bool chat_;
  ChatStyle style_;
};

int64_t longest_prompt(std::span<const std::vector<int32_t>> prompt_ids);
// Error(kUsage) or Error(kData) naming the prompt that is longer than the context; `adjustable`: by --context.
void check_prompts_fit(std::span<const Prompt> prompts, std::span<const std::vector<int32_t>> prompt_ids,
                       int64_t context_tokens, bool adjustable);

}  // namespace patina
