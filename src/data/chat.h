// Chat formats: which one a model's own template is, and rendering a conversation to token ids with the spans that are
// supervised.
#pragma once

#include <cstdint>
#include <optional>
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

struct ChatStyle {
  ChatFormat format;
  std::string default_system;  // the template's own default system turn; empty = none
};

// A rendered conversation. supervised[i] says that ids[i] is a label: the tokens of assistant contents and their end
// markers.
struct RenderedChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
};

// Recognises the format from the template text of the model file. `override_name` (chatml, llama3, mistral; empty =
// none) wins. Error(kModel) with the list of known formats where the template is unknown or missing.
ChatStyle chat_style(const TokenizerSpec& spec, std::string_view override_name);
std::vector<std::string_view> chat_format_names();

// Renders messages; with `open_assistant` the header of an assistant turn follows, ready for generation. Message
// contents are encoded without parsing special tokens, role markers with. BOS is written exactly once where the format
// or file wants it. Error(kData) where roles are unknown or their order is impossible.
RenderedChat render_chat(const Tokenizer& tokenizer, const ChatStyle& style, const std::vector<ChatMessage>& messages,
                         bool open_assistant);

}  // namespace patina
