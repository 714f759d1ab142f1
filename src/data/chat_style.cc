// Reading a chat style out of a Jinja template: no Jinja is run, the literals that make the format are found in its
// text.
#include <array>

#include "base/error.h"
#include "data/chat.h"

namespace patina {
namespace {

struct KnownFormat {
  std::string_view name;
  ChatFormat format;
  std::string_view first_sign, second_sign;  // both occur in every template of the format
};

constexpr std::array<KnownFormat, 3> kFormats = {{
    {"chatml", ChatFormat::kChatML, "<|im_start|>", "<|im_end|>"},
    {"llama3", ChatFormat::kLlama3, "<|start_header_id|>", "<|eot_id|>"},
    {"mistral", ChatFormat::kMistral, "[INST]", "[/INST]"},
}};

// Other formats that use Mistral's markers in another way: Llama 2's system block, and Mistral's system turns of 2025.
constexpr std::array<std::string_view, 2> kForeignSigns = {"<<SYS>>", "[SYSTEM_PROMPT]"};

std::string names_joined() {
  std::string names;
  for (const KnownFormat& known : kFormats) names.append(names.empty() ? "" : ", ").append(known.name);
  return names;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

const KnownFormat* recognise(std::string_view text) {
  for (const std::string_view sign : kForeignSigns)
    if (contains(text, sign)) return nullptr;
  for (const KnownFormat& known : kFormats)
    if (contains(text, known.first_sign) && contains(text, known.second_sign)) return &known;
  return nullptr;
}

struct Literal {
  std::string text;  // with escapes resolved
  size_t end;        // position after its closing quote
};

// The Jinja string literal whose opening quote is at `quote`; it ends with the template where no quote closes it.
Literal read_literal(std::string_view text, size_t quote) {
  Literal literal;
  size_t i = quote + 1;
  for (; i < text.size() && text[i] != text[quote]; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      literal.text += text[i];
      continue;
    }
    const char escaped = text[++i];
    literal.text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
  }
  literal.end = i + 1;
  return literal;
}

bool is_quote(char c) { return c == '\'' || c == '"'; }

// The first literal that begins with `prefix`, without it; empty where there is none.
std::string literal_after(std::string_view text, std::string_view prefix) {
  const size_t at = text.find(prefix);
  if (at == std::string_view::npos || at == 0 || !is_quote(text[at - 1])) return "";
  return read_literal(text, at - 1).text.substr(prefix.size());
}

// A default system turn is one literal from the system header to the end marker.
std::string default_system(std::string_view text) {
  constexpr std::string_view kHeader = "<|im_start|>system", kEnd = "<|im_end|>";
  for (size_t at = text.find(kHeader); at != std::string_view::npos; at = text.find(kHeader, at + 1)) {
    if (at == 0 || !is_quote(text[at - 1])) continue;
    const std::string turn = read_literal(text, at - 1).text.substr(kHeader.size());
    const size_t end = turn.find(kEnd);
    if (end != std::string::npos && end > 1 && turn[0] == '\n') return turn.substr(1, end - 1);
  }
  return "";
}

// Llama 3.1 and later begin the system turn with the knowledge date and a date of today, for which the template has a
// fixed default: the one that is used here, so that a run does not depend on its day.
std::string llama3_system_prefix(std::string_view text) {
  constexpr std::string_view kKnowledge = "Cutting Knowledge Date: ", kToday = "Today Date: ";
  const std::string knowledge = literal_after(text, kKnowledge);
  if (knowledge.empty()) return "";
  std::string date;
  for (size_t at = text.find("date_string = "); at != std::string_view::npos; at = text.find("date_string = ", at + 1))
    if (const size_t quote = at + std::string_view("date_string = ").size();
        quote < text.size() && is_quote(text[quote]))
      date = read_literal(text, quote).text;
  return fmt::format("{}{}{}{}\n\n", kKnowledge, knowledge, kToday, date);
}

// A marker with the spaces that its literal has around it.
std::string with_spaces(std::string_view text, std::string_view marker) {
  size_t begin = text.find(marker), end = begin + marker.size();
  while (begin > 0 && text[begin - 1] == ' ') --begin;
  while (end < text.size() && text[end] == ' ') ++end;
  return std::string(text.substr(begin, end - begin));
}

bool spaces_before_answer(std::string_view text) {
  for (const std::string_view message : {"message['content']", "message[\"content\"]", "message.content"})
    for (const std::string_view space : {"' ' + ", "\" \" + "})
      if (contains(text, std::string(space).append(message))) return true;
  return false;
}

}  // namespace

std::vector<std::string_view> chat_format_names() {
  std::vector<std::string_view> names;
  for (const KnownFormat& known : kFormats) names.push_back(known.name);
  return names;
}

ChatStyle chat_style(const TokenizerSpec& spec, std::string_view override_name) {
  const std::string_view text = spec.chat_template;
  const KnownFormat* own = recognise(text);
  const KnownFormat* used = own;
  if (!override_name.empty()) {
    used = nullptr;
    for (const KnownFormat& known : kFormats)
      if (known.name == override_name) used = &known;
    if (used == nullptr)
      fail(Error::Kind::kUsage, "--chat-template {}: unknown chat format; known are {}", override_name, names_joined());
  }
  if (used == nullptr)
    fail(Error::Kind::kModel,
         "{}: {}; known formats are {}: choose the one the model was trained with by --chat-template", spec.source,
         text.empty() ? "the file has no chat template (tokenizer.chat_template)"
                      : "the chat template (tokenizer.chat_template) is of no known format",
         names_joined());

  ChatStyle style;
  style.format = used->format;
  if (used != own) return style;  // the template's details are those of another format
  switch (used->format) {
    case ChatFormat::kChatML:
      style.default_system = default_system(text);
      break;
    case ChatFormat::kLlama3:
      style.system_prefix = llama3_system_prefix(text);
      break;
    case ChatFormat::kMistral:
      style.user_open = with_spaces(text, "[INST]");
      style.user_close = with_spaces(text, "[/INST]");
      if (spaces_before_answer(text)) style.assistant_open = ' ';
      break;
  }
  return style;
}

}  // namespace patina
