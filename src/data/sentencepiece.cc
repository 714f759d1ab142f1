#include "data/sentencepiece.h"

#include <algorithm>

#include "base/error.h"

namespace patina {
namespace {

constexpr std::string_view kSpace = "\u2581";  // what SentencePiece writes for a space

// Length of the character that the text begins with; bytes that are no UTF-8 count as characters of their own.
size_t character_bytes(std::string_view text) {
  const uint8_t first = static_cast<uint8_t>(text[0]);
  const size_t whole = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  size_t bytes = 1;
  while (bytes < whole && bytes < text.size() && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80) ++bytes;
  return bytes;
}

std::string byte_text(size_t byte) { return fmt::format("<0x{:02X}>", byte); }

// True where a token has a space behind something else than spaces.
bool has_inner_space(std::string_view token) {
  size_t at = 0;
  while (token.substr(at).starts_with(kSpace)) at += kSpace.size();
  return token.find(kSpace, at) != std::string_view::npos;
}

}  // namespace

// Symbols of one run as a linked list, and the merges that are possible, best first. Kept between runs.
struct SentencePiece::Workspace {
  struct Symbol {
    std::string_view text;  // empty: merged into its left neighbour
    int32_t previous, next;
  };
  struct Candidate {
    float score;
    int32_t left;
    size_t bytes;  // of both symbols together, when it was offered
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> candidates;  // a heap
};

SentencePiece::SentencePiece(TokenizerSpec spec) : Tokenizer(std::move(spec)) {
  if (spec_.scores.size() != spec_.tokens.size())
    fail(Error::Kind::kModel, "{}: the tokenizer has {} tokens but {} scores; the file is damaged, get it again",
         spec_.source, spec_.tokens.size(), spec_.scores.size());
  for (const float score : spec_.scores)
    if (!(score == score))
      fail(Error::Kind::kModel, "{}: a token score is not a number; the file is damaged", spec_.source);
  for (size_t byte = 0; byte < 256; ++byte) byte_token_[byte] = find(byte_text(byte));
  for (int32_t id = 0; id < vocabulary() && words_are_apart_; ++id)
    words_are_apart_ = is_hidden(id) || !has_inner_space(spec_.tokens[static_cast<size_t>(id)]);
}

// The token that plain text becomes: control tokens and the bytes' own names are never meant.
int32_t SentencePiece::find_text(std::string_view text) const {
  const int32_t id = find(text);
  return id >= 0 && !is_hidden(id) && type(id) != TokenType::kByte ? id : -1;
}

void SentencePiece::encode_text(std::string_view text, bool after_special, std::vector<int32_t>* ids) const {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2);
  if (after_special && spec_.add_space_prefix) escaped += kSpace;
  for (const char c : text) c == ' ' ? escaped += kSpace : escaped += c;

  Workspace work;
  const std::string_view whole = escaped;
  size_t begin = 0;
  for (size_t at = 0; words_are_apart_ && (at = whole.find(kSpace, at)) != std::string_view::npos;
       at += kSpace.size()) {
    if (at == begin || whole.substr(0, at).ends_with(kSpace)) continue;
    merge_run(whole.substr(begin, at - begin), &work, ids);
    begin = at;
  }
  if (begin < whole.size()) merge_run(whole.substr(begin), &work, ids);
}

void SentencePiece::merge_run(std::string_view run, Workspace* work, std::vector<int32_t>* ids) const {
  if (run.size() > static_cast<size_t>(INT32_MAX))
    fail(Error::Kind::kData, "a text of {} bytes is too long to tokenize at once; split it", run.size());
  std::vector<Workspace::Symbol>& symbols = work->symbols;
  std::vector<Workspace::Candidate>& heap = work->candidates;
  symbols.clear();
  heap.clear();
  for (size_t at = 0; at < run.size(); at += symbols.back().text.size()) {
    const int32_t i = static_cast<int32_t>(symbols.size());
    symbols.push_back({run.substr(at, character_bytes(run.substr(at))), i - 1, i + 1});
  }
  symbols.back().next = -1;

  const auto symbol = [&](int32_t i) -> Workspace::Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const std::string_view both(symbol(left).text.data(), symbol(left).text.size() + symbol(right).text.size());
    const int32_t token = find_text(both);
    if (token < 0) return;
    heap.push_back({spec_.scores[static_cast<size_t>(token)], left, both.size()});
    std::push_heap(heap.begin(), heap.end());
  };
  for (int32_t i = 1; i < static_cast<int32_t>(symbols.size()); ++i) offer(i - 1, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    Workspace::Symbol& left = symbol(best.left);
    if (left.text.empty() || left.next < 0) continue;  // outdated
    Workspace::Symbol& right = symbol(left.next);
    if (left.text.size() + right.text.size() != best.bytes) continue;
    left.text = std::string_view(left.text.data(), best.bytes);
    right.text = {};
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.left;
    offer(left.previous, best.left);
    offer(best.left, left.next);
  }

  for (int32_t i = 0; i >= 0; i = symbol(i).next) {
    const std::string_view part = symbol(i).text;
    if (const int32_t token = find_text(part); token >= 0) {
      ids->push_back(token);
      continue;
    }
    for (const char c : part) {
      int32_t token = byte_token_[static_cast<uint8_t>(c)];
      if (token < 0) token = spec_.unknown;
      if (token >= 0) ids->push_back(token);
    }
  }
}

std::string SentencePiece::piece(int32_t token, bool show_special) const {
  PATINA_CHECK(token >= 0 && token < vocabulary(), "token {} of {}", token, vocabulary());
  const std::string& text = spec_.tokens[static_cast<size_t>(token)];
  if (is_hidden(token)) return show_special ? text : std::string();
  if (type(token) == TokenType::kUserDefined) return text;
  if (type(token) == TokenType::kByte)
    for (size_t byte = 0; byte < 256; ++byte)
      if (byte_token_[byte] == token) return {static_cast<char>(byte)};
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const bool space = text.compare(i, kSpace.size(), kSpace) == 0;
    bytes += space ? ' ' : text[i];
    i += space ? kSpace.size() : 1;
  }
  return bytes;
}

}  // namespace patina
