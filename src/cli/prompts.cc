#include "cli/prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/text_file.h"

namespace patina {

namespace {

[[noreturn]] void refuse(const Prompt& prompt, const std::string& why) {
  if (prompt.where.empty()) fail(Error::Kind::kUsage, "--prompt: {}", why);
  fail(Error::Kind::kData, "{}: {}", prompt.where, why);
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& path) {
  const std::string text = read_text_file(path).text;
  std::vector<Prompt> prompts;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (is_blank(line)) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string())
      fail(Error::Kind::kData, "{}: expected a JSON object with a string \"prompt\", one a line", where);
    prompts.push_back({object["prompt"], where});
  }
  if (prompts.empty())
    fail(Error::Kind::kData, "{}: no prompt in it; expected a JSON object with a \"prompt\" on each line",
         path.string());
  return prompts;
}

Conversation::Conversation(const Tokenizer& tokenizer, bool raw, std::string system, const std::string& chat_template)
    : tokenizer_(tokenizer), system_(std::move(system)) {
  chat_ = !raw && (!tokenizer.spec().chat_template.empty() || !chat_template.empty());
  if (!chat_ && !system_.empty())
    fail(Error::Kind::kUsage, "--system needs a chat format: {}",
         raw ? "leave --raw out" : "the model file has none; choose one by --chat-template");
  if (chat_) style_ = chat_style(tokenizer.spec(), chat_template);
}

std::vector<int32_t> Conversation::prompt_ids(const std::string& prompt) const {
  if (chat_) {
    std::vector<ChatMessage> messages;
    if (!system_.empty()) messages.push_back({"system", system_});
    messages.push_back({"user", prompt});
    return render_chat(tokenizer_, style_, messages, true).ids;
  }
  std::vector<int32_t> ids;
  if (tokenizer_.spec().add_bos && tokenizer_.spec().bos >= 0) ids.push_back(tokenizer_.spec().bos);
  const std::vector<int32_t> text = tokenizer_.encode(prompt, false);
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

std::vector<std::vector<int32_t>> Conversation::prompt_ids(std::span<const Prompt> prompts) const {
  std::vector<std::vector<int32_t>> ids;
  for (const Prompt& prompt : prompts) {
    ids.push_back(prompt_ids(prompt.text));
    if (ids.back().empty()) refuse(prompt, "the prompt is empty: give at least one token");
  }
  return ids;
}

std::string Conversation::answer_text(const std::vector<int32_t>& ids) const {
  if (chat_) return tokenizer_.decode(ids);
  std::string text;
  for (const int32_t id : ids) text += tokenizer_.piece(id);
  return text;
}

int64_t longest_prompt(std::span<const std::vector<int32_t>> prompt_ids) {
  int64_t longest = 0;
  for (const std::vector<int32_t>& ids : prompt_ids) longest = std::max(longest, std::ssize(ids));
  return longest;
}

void check_prompts_fit(std::span<const Prompt> prompts, std::span<const std::vector<int32_t>> prompt_ids,
                       int64_t context_tokens, bool adjustable) {
  for (size_t i = 0; i < prompts.size(); ++i)
    if (std::ssize(prompt_ids[i]) > context_tokens)
      refuse(prompts[i], fmt::format("the prompt takes {} tokens, more than the context of {}; shorten it{}",
                                     prompt_ids[i].size(), context_tokens, adjustable ? " or raise --context" : ""));
}

}  // namespace patina
