#include "data/byte_level_bpe.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace patina {
namespace {

// GPT-2 writes every byte as a printable character: printable Latin-1 stands for itself, the other 68 bytes are U+0100
// onward in their order.
struct ByteAlphabet {
  std::array<std::string, 256> text;
  std::array<int16_t, 324> byte_of;  // code point to byte, -1 where it stands for none

  ByteAlphabet() {
    byte_of.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const uint32_t code = printable ? byte : next++;
      byte_of[code] = static_cast<int16_t>(byte);
      if (code >= 0x80) text[byte].push_back(static_cast<char>(0xc0 | code >> 6));
      text[byte].push_back(static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f)));
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

const PreTokenizer* require_pre_tokenizer(const TokenizerSpec& spec) {
  const PreTokenizer* pre = find_pre_tokenizer(spec.pre);
  if (pre == nullptr)
    fail(Error::Kind::kModel,
         "{}: unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known are {}; convert the model again with a current "
         "converter, "
         "or use a model of one of these families",
         spec.source, spec.pre, pre_tokenizer_names());
  return pre;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// Symbols of one word as a linked list, and the merges that are possible, best first. Kept between words.
struct ByteLevelBpe::Workspace {
  struct Symbol {
    int32_t token, previous, next;  // token -1: merged into its left neighbour
  };
  struct Candidate {
    int32_t rank, left, left_token, right_token, result;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> candidates;  // a heap
  std::string mapped;
};

ByteLevelBpe::ByteLevelBpe(TokenizerSpec spec)
    : Tokenizer(std::move(spec)), pre_(require_pre_tokenizer(spec_)), splitter_(pre_->pattern) {
  for (size_t byte = 0; byte < 256; ++byte) byte_token_[byte] = find(byte_alphabet().text[byte]);
  if (spec_.merges.empty())
    fail(Error::Kind::kModel, "{}: a byte-level tokenizer needs its merges (tokenizer.ggml.merges), the file has none",
         spec_.source);
  if (spec_.merges.size() > static_cast<size_t>(INT32_MAX))
    fail(Error::Kind::kModel, "{}: {} merges, at most {} are possible", spec_.source, spec_.merges.size(), INT32_MAX);
  merges_.reserve(spec_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const std::string_view line = spec_.merges[rank];
    const size_t space = line.find(' ', 1);
    const std::string_view left = line.substr(0, space);
    const std::string_view right = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t left_id = find(left), right_id = find(right), result = find(joined);
    if (left_id < 0 || right_id < 0 || result < 0)
      fail(Error::Kind::kModel,
           "{}: merge {} '{}' (tokenizer.ggml.merges) names a token that the vocabulary lacks; the file is damaged",
           spec_.source, rank, line);
    merges_.emplace(pair_key(left_id, right_id), Merge{static_cast<int32_t>(rank), result});
  }
}

const ByteLevelBpe::Merge* ByteLevelBpe::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void ByteLevelBpe::merge_word(std::string_view word, Workspace* work, std::vector<int32_t>* ids) const {
  std::vector<Workspace::Symbol>& symbols = work->symbols;
  std::vector<Workspace::Candidate>& heap = work->candidates;
  symbols.clear();
  heap.clear();
  for (const char c : word) {
    const int32_t token = byte_token_[static_cast<uint8_t>(c)];
    if (token < 0) continue;
    const int32_t at = static_cast<int32_t>(symbols.size());
    symbols.push_back({token, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const int32_t left_token = symbols[static_cast<size_t>(left)].token,
                  right_token = symbols[static_cast<size_t>(right)].token;
    if (const Merge* merge = find_merge(left_token, right_token)) {
      heap.push_back({merge->rank, left, left_token, right_token, merge->result});
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (int32_t i = 1; i < static_cast<int32_t>(symbols.size()); ++i) offer(i - 1, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    Workspace::Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.token != best.left_token || left.next < 0) continue;  // outdated
    Workspace::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.token != best.right_token) continue;
    left.token = best.result;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    offer(left.previous, best.left);
    offer(best.left, left.next);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    ids->push_back(symbols[static_cast<size_t>(i)].token);
}

void ByteLevelBpe::encode_text(std::string_view text, bool, std::vector<int32_t>* ids) const {
  Workspace work;
  std::vector<std::string_view> words;
  splitter_.split(text, &words);
  for (const std::string_view word : words) {
    if (pre_->ignore_merges) {
      work.mapped.clear();
      for (const char c : word) work.mapped += byte_alphabet().text[static_cast<uint8_t>(c)];
      const int32_t whole = find(work.mapped);
      if (whole >= 0 && !is_hidden(whole)) {
        ids->push_back(whole);
        continue;
      }
    }
    merge_word(word, &work, ids);
  }
}

std::string ByteLevelBpe::piece(int32_t token, bool show_special) const {
  PATINA_CHECK(token >= 0 && token < vocabulary(), "token {} of {}", token, vocabulary());
  const std::string& text = spec_.tokens[static_cast<size_t>(token)];
  if (is_hidden(token)) return show_special ? text : std::string();
  if (type(token) == TokenType::kUserDefined) return text;
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t first = static_cast<uint8_t>(text[i]);
    // The alphabet's characters have one byte, or two with a lead up to 0xc5; others stand for themselves.
    const bool two = first >= 0xc2 && first <= 0xc5 && i + 1 < text.size();
    const size_t code = two ? (first & 0x1fu) << 6 | (static_cast<uint8_t>(text[i + 1]) & 0x3fu) : first;
    const int16_t byte =
        (two || first < 0x80) && code < byte_alphabet().byte_of.size() ? byte_alphabet().byte_of[code] : -1;
    bytes += byte >= 0 ? static_cast<char>(byte) : text[i];
    if (byte >= 0 && two) ++i;
  }
  return bytes;
}

}  // namespace patina
