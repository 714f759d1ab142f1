#include "data/chat.h"

#include "base/error.h"
#include "data/text_file.h"

namespace patina {
namespace {

// Collects plain text until a special token or a change of supervision ends the run, and encodes each run as one
// string.
class Renderer {
 public:
  Renderer(const Tokenizer& tokenizer, RenderedChat* chat) : tokenizer_(tokenizer), chat_(chat) {}

  void text(std::string_view text, bool supervised) {
    if (supervised != run_supervised_) flush();
    run_supervised_ = supervised;
    run_ += text;
  }

  void token(int32_t id, bool supervised) {
    flush();
    add(id, supervised);
    after_special_ = true;
  }

  void marker(std::string_view name, bool supervised) {
    const int32_t id = tokenizer_.find(name);
    if (id < 0)
      fail(Error::Kind::kModel,
           "{}: the vocabulary has no token {}, which the chat format needs; choose another format by --chat-template",
           tokenizer_.spec().source, name);
    token(id, supervised);
  }

  void flush() {
    for (const int32_t id : tokenizer_.encode(run_, false, after_special_)) add(id, run_supervised_);
    after_special_ = after_special_ && run_.empty();
    run_.clear();
  }

 private:
  void add(int32_t id, bool supervised) {
    chat_->ids.push_back(id);
    chat_->supervised.push_back(supervised);
  }

  const Tokenizer& tokenizer_;
  RenderedChat* chat_;
  std::string run_;
  bool run_supervised_ = false, after_special_ = true;
};

// ASCII white space only (Jinja's trim also takes the rest of Unicode's).
std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

void check_roles(const std::vector<ChatMessage>& messages, ChatFormat format) {
  if (messages.empty()) fail(Error::Kind::kData, "a conversation has no messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant")
      fail(Error::Kind::kData, "message {} has the unknown role {}; known are system, user and assistant", i + 1,
           json_quoted(std::string_view(role).substr(0, 40)));
  }
  if (format != ChatFormat::kMistral) return;
  const size_t first = messages[0].role == "system" ? 1 : 0;
  if (first == messages.size())
    fail(Error::Kind::kData, "message 1 is a system message and no user message follows, as the mistral format needs");
  for (size_t i = first; i < messages.size(); ++i) {
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != expected)
      fail(Error::Kind::kData,
           "message {} has the role {}, but the mistral format expects {} there: user and assistant in turns", i + 1,
           messages[i].role, expected);
  }
}

void chatml(Renderer* out, const ChatStyle& style, const std::vector<ChatMessage>& messages, bool open_assistant) {
  const auto header = [&](std::string_view role) {
    out->marker("<|im_start|>", false);
    out->text(fmt::format("{}\n", role), false);
  };
  const auto turn = [&](std::string_view role, std::string_view content) {
    const bool supervised = role == "assistant";
    header(role);
    out->text(content, supervised);
    out->marker("<|im_end|>", supervised);
    out->text("\n", false);
  };
  if (messages[0].role != "system" && !style.default_system.empty()) turn("system", style.default_system);
  for (const ChatMessage& message : messages) turn(message.role, message.content);
  if (open_assistant) header("assistant");
}

void llama3(Renderer* out, const ChatStyle& style, const std::vector<ChatMessage>& messages, bool open_assistant) {
  const auto header = [&](std::string_view role) {
    out->marker("<|start_header_id|>", false);
    out->text(role, false);
    out->marker("<|end_header_id|>", false);
    out->text("\n\n", false);
  };
  const auto turn = [&](std::string_view role, std::string_view prefix, std::string_view content) {
    const bool supervised = role == "assistant";
    header(role);
    out->text(prefix, false);
    out->text(trim(content), supervised);
    out->marker("<|eot_id|>", supervised);
  };
  const bool has_system = messages[0].role == "system";
  if (has_system || !style.system_prefix.empty())
    turn("system", style.system_prefix, has_system ? std::string_view(messages[0].content) : "");
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) turn(messages[i].role, "", messages[i].content);
  if (open_assistant) header("assistant");
}

void mistral(Renderer* out, const Tokenizer& tokenizer, const ChatStyle& style,
             const std::vector<ChatMessage>& messages) {
  if (tokenizer.spec().eos < 0)
    fail(Error::Kind::kModel,
         "{}: the mistral format ends answers with EOS, but the file names none (tokenizer.ggml.eos_token_id)",
         tokenizer.spec().source);
  // [INST] is a token in later vocabularies and plain text in the first ones.
  const auto literal = [&](std::string_view text, std::string_view name) {
    const int32_t id = tokenizer.find(name);
    const size_t at = text.find(name);
    if (id < 0 || at == std::string_view::npos) return out->text(text, false);
    out->text(text.substr(0, at), false);
    out->token(id, false);
    out->text(text.substr(at + name.size()), false);
  };
  const size_t first = messages[0].role == "system" ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    if (messages[i].role == "user") {
      literal(style.user_open, "[INST]");
      if (i == 1 && first == 1) out->text(messages[0].content + "\n\n", false);
      out->text(messages[i].content, false);
      literal(style.user_close, "[/INST]");
    } else {
      out->text(style.assistant_open + messages[i].content, true);
      out->token(tokenizer.spec().eos, true);
    }
  }
}

}  // namespace

RenderedChat render_chat(const Tokenizer& tokenizer, const ChatStyle& style, const std::vector<ChatMessage>& messages,
                         bool open_assistant) {
  check_roles(messages, style.format);
  RenderedChat chat;
  Renderer out(tokenizer, &chat);
  switch (style.format) {
    case ChatFormat::kChatML:
      chatml(&out, style, messages, open_assistant);
      break;
    case ChatFormat::kLlama3:
      llama3(&out, style, messages, open_assistant);
      break;
    case ChatFormat::kMistral:
      mistral(&out, tokenizer, style, messages);  // an answer has no header: what opens it belongs to its first token
      break;
  }
  out.flush();
  // Templates of Llama 3 and Mistral write BOS themselves, a file may ask for it in any format, and a format's first
  // marker may be BOS already (SmolLM names <|im_start|> so).
  const TokenizerSpec& spec = tokenizer.spec();
  const bool wanted = spec.add_bos || style.format != ChatFormat::kChatML;
  if (wanted && spec.bos >= 0 && chat.ids.front() != spec.bos) {
    chat.ids.insert(chat.ids.begin(), spec.bos);
    chat.supervised.insert(chat.supervised.begin(), 0);
  }
  return chat;
}

}  // namespace patina
