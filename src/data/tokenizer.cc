#include "data/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/byte_level_bpe.h"
#include "data/sentencepiece.h"

namespace patina {
namespace {

// Tokens after which a turn or a document ends, in the vocabularies of the families we load.
constexpr std::array<std::string_view, 8> kEndMarkers = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "</s>"};

void check_special_id(const TokenizerSpec& spec, std::string_view what, int32_t id) {
  if (id < -1 || id >= static_cast<int64_t>(spec.tokens.size()))
    fail(Error::Kind::kModel,
         "{}: the {} token is {}, but the vocabulary has {} tokens; the file is damaged, get it again", spec.source,
         what, id, spec.tokens.size());
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::make(TokenizerSpec spec) {
  if (spec.tokens.empty())
    fail(Error::Kind::kModel,
         "{}: the vocabulary (tokenizer.ggml.tokens) is empty; use a model file with its tokenizer", spec.source);
  if (spec.tokens.size() > static_cast<size_t>(INT32_MAX))
    fail(Error::Kind::kModel, "{}: the vocabulary has {} tokens, at most {} are possible", spec.source,
         spec.tokens.size(), INT32_MAX);
  if (spec.types.size() != spec.tokens.size())
    fail(Error::Kind::kModel, "{}: the tokenizer has {} tokens but {} token types; the file is damaged, get it again",
         spec.source, spec.tokens.size(), spec.types.size());
  check_special_id(spec, "BOS", spec.bos);
  check_special_id(spec, "EOS", spec.eos);
  check_special_id(spec, "EOT", spec.eot);
  check_special_id(spec, "unknown", spec.unknown);
  if (spec.model == "gpt2") return std::make_unique<ByteLevelBpe>(std::move(spec));
  if (spec.model == "llama") return std::make_unique<SentencePiece>(std::move(spec));
  fail(Error::Kind::kModel, "{}: unknown tokenizer model '{}' (tokenizer.ggml.model); known are gpt2 and llama",
       spec.source, spec.model);
}

Tokenizer::Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {
  index_.reserve(spec_.tokens.size());
  for (int32_t id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    if (token.empty()) continue;  // a hole in the vocabulary: no text leads to it
    const auto [first, added] = index_.emplace(token, id);
    if (!added)
      fail(Error::Kind::kModel, "{}: tokens {} and {} of the vocabulary have the same text '{}'; the file is damaged",
           spec_.source, first->second, id, token);
  }
  // An end marker that a converter called user-defined would be found in message contents, which could then end a turn.
  for (const std::string_view marker : kEndMarkers) {
    const int32_t id = find(marker);
    if (id >= 0 && type(id) == TokenType::kUserDefined) spec_.types[static_cast<size_t>(id)] = TokenType::kControl;
  }
  for (int32_t id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    if (!token.empty() && (is_hidden(id) || type(id) == TokenType::kUserDefined))
      special_by_first_byte_[static_cast<uint8_t>(token[0])].push_back(id);
  }
  for (std::vector<int32_t>& ids : special_by_first_byte_)
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return spec_.tokens[static_cast<size_t>(a)].size() > spec_.tokens[static_cast<size_t>(b)].size();
    });
}

bool Tokenizer::is_hidden(int32_t token) const {
  return type(token) == TokenType::kControl || type(token) == TokenType::kUnknown;
}

// The longest special token that the text begins with, -1 where there is none.
int32_t Tokenizer::special_at(std::string_view text, bool parse_special) const {
  for (const int32_t id : special_by_first_byte_[static_cast<uint8_t>(text[0])])
    if ((parse_special || !is_hidden(id)) && text.starts_with(spec_.tokens[static_cast<size_t>(id)])) return id;
  return -1;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special, bool after_special) const {
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const int32_t special = special_at(text.substr(i), parse_special);
    if (special < 0) {
      ++i;
      continue;
    }
    if (i > begin) encode_text(text.substr(begin, i - begin), after_special, &ids);
    ids.push_back(special);
    after_special = true;
    i += spec_.tokens[static_cast<size_t>(special)].size();
    begin = i;
  }
  if (begin < text.size()) encode_text(text.substr(begin), after_special, &ids);
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& tokens, bool show_special) const {
  std::string text;
  bool strip = spec_.model == "llama" && spec_.add_space_prefix;
  for (const int32_t token : tokens) {
    const std::string bytes = piece(token, show_special);
    const bool prefixed = strip && !bytes.empty() && bytes[0] == ' ' && !is_hidden(token);
    text.append(bytes, prefixed ? 1 : 0);
    strip = strip && is_hidden(token);
  }
  return text;
}

bool Tokenizer::is_end(int32_t token) const {
  if (token < 0 || token >= vocabulary()) return false;
  if (token == spec_.eos || token == spec_.eot) return true;
  return type(token) == TokenType::kControl && std::find(kEndMarkers.begin(), kEndMarkers.end(),
                                                         spec_.tokens[static_cast<size_t>(token)]) != kEndMarkers.end();
}

int32_t Tokenizer::find(std::string_view token) const {
  const auto found = index_.find(token);
  return found == index_.end() ? -1 : found->second;
}

}  // namespace patina
