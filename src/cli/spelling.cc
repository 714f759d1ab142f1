#include "cli/spelling.h"

#include <algorithm>

namespace patina {

namespace {

struct Speech {
  std::string program = "patina";
  std::vector<Spelling> spellings;
};

Speech& speech() {
  static Speech one;
  return one;
}

// How much of `text` is a word: letters, digits and what stands within names, but no full stop at its end.
size_t word_length(std::string_view text) {
  constexpr std::string_view kInWords = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:<>";
  size_t length = std::min(text.find_first_not_of(kInWords), text.size());
  while (length > 0 && (text[length - 1] == '.' || text[length - 1] == ':')) --length;
  return length;
}

}  // namespace

std::string_view program_name() { return speech().program; }

void speak_as(std::string program, std::vector<Spelling> spellings) {
  speech() = {std::move(program), std::move(spellings)};
}

std::string spelled(std::string_view message) {
  const std::vector<Spelling>& spellings = speech().spellings;
  std::string text;
  while (!message.empty()) {
    const bool begins = text.empty() || std::string_view(" (\"'\n").find(text.back()) != std::string_view::npos;
    const std::string_view flag = message.substr(0, word_length(message));
    const auto found = begins ? std::ranges::find(spellings, flag, &Spelling::ours) : spellings.end();
    if (found == spellings.end()) {
      text += message.front();
      message.remove_prefix(1);
      continue;
    }
    message.remove_prefix(flag.size());
    const std::string_view behind = message.starts_with(' ') ? message.substr(1) : std::string_view();
    const std::string_view value = behind.substr(0, word_length(behind));
    const auto pair = std::ranges::find(found->values, value, &std::pair<std::string, std::string>::first);
    if (pair != found->values.end()) {
      text += pair->second;
      message.remove_prefix(1 + value.size());
    } else {
      const bool is_number = !value.empty() && value.front() >= '0' && value.front() <= '9';
      const bool stays = is_number && !found->numbers;
      text += stays ? std::string(flag) : found->theirs;
    }
  }
  return text;
}

}  // namespace patina
