// Chat formats: which one a model's own template is, and rendering a conversation to token ids with the spans that are
// supervised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace patina {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

enum class ChatFormat { kChatML, kLlama3, kMistral };

// A format and what templates of that format differ in.
struct ChatStyle {
  ChatFormat format = ChatFormat::kChatML;
  std::string default_system;  // ChatML: the template's own default system turn; empty = none
  std::string
      system_prefix;  // Llama 3.1 and later: what begins every system turn, which then always exists; empty = none
  // Mistral: the literals around a user turn and before an assistant's answer, with the template's spaces.
  std::string user_open = "[INST] ", user_close = " [/INST]", assistant_open;
};

// A rendered conversation. supervised[i] says that ids[i] is a label: the tokens of assistant contents and their end
// markers.
struct RenderedChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
};

// Recognises the format from the template text of the model file. `override_name` (chatml, llama3, mistral; empty =
// none) wins. Only system, user and assistant turns of a template are reproduced: tools, reasoning blocks and dates of
// the day are not. Error(kUsage) where the override is no known name, Error(kModel) where the template is unknown or
// missing, or the vocabulary lacks the format's markers; each with the list of known formats.
ChatStyle chat_style(const TokenizerSpec& spec, std::string_view override_name);
std::vector<std::string_view> chat_format_names();

// Renders messages; with `open_assistant` the header of an assistant turn follows, ready for generation. Message
// contents are encoded without parsing special tokens, role markers are ids. BOS is written exactly once where the
// format or file wants it.
//
// Text between two special tokens is encoded as one string, so that the ids are those of the whole rendered text, with
// one exception: an assistant's header and its content are encoded apart. What the model is trained on is then what it
// continues when it generates (the prompt ends with the header), and no token is half supervised. The two differ only
// where a content begins with characters that would join the header's last token, such as a newline.
//
// Error(kData) where there are no messages, a role is unknown, or the order of roles is impossible in the format
// (Mistral: an optional system turn, then user and assistant in turns). Error(kModel) where the vocabulary lacks a
// marker.
RenderedChat render_chat(const Tokenizer& tokenizer, const ChatStyle& style, const std::vector<ChatMessage>& messages,
                         bool open_assistant);

}  // namespace patina
