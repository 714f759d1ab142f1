// Text to token ids and back, from the tables that a model file carries.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace patina {

// GGUF's tokenizer.ggml.token_type values.
enum class TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The tables of a tokenizer, whatever file they came from.
struct TokenizerSpec {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;    // pre-tokenizer name for byte-level BPE: "smollm", "gpt-2", "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens;
  std::vector<TokenType> types;                        // as long as tokens
  std::vector<float> scores;                           // SentencePiece only
  std::vector<std::string> merges;                     // byte-level BPE only: "left right"
  int32_t bos = -1, eos = -1, unknown = -1, eot = -1;  // -1 where the file names none
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = true;  // SentencePiece only
  std::string chat_template;     // Jinja text, may be empty
  std::string source;            // path, for messages
};

class Tokenizer {
 public:
  // Error(kModel) naming the source where the model or pre-tokenizer is unknown (with the list of known ones), the
  // vocabulary is empty, or the tables disagree.
  static std::unique_ptr<Tokenizer> make(TokenizerSpec spec);
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of a text, without BOS or EOS. parse_special = false: text that looks like a control token stays text;
  // user-defined tokens are found either way, as in llama.cpp and Hugging Face tokenizers. `after_special` says that
  // nothing or a special token comes before the text: SentencePiece then writes its space prefix (where the file wants
  // one). Bytes that are no UTF-8 pass through: each becomes the token of its byte. A byte that the vocabulary has no
  // token for (SmolLM lacks some control characters) is dropped by byte-level BPE, as in llama.cpp; SentencePiece
  // writes the unknown token.
  std::vector<int32_t> encode(std::string_view text, bool parse_special, bool after_special = true) const;
  // The bytes of one token; control and unknown tokens give their text only where show_special.
  virtual std::string piece(int32_t token, bool show_special = false) const = 0;
  // The bytes of a sequence. SentencePiece's leading space is removed from the first token that has text, where the
  // file adds one.
  std::string decode(const std::vector<int32_t>& tokens, bool show_special = false) const;

  const TokenizerSpec& spec() const { return spec_; }
  int32_t vocabulary() const { return static_cast<int32_t>(spec_.tokens.size()); }
  // True for tokens after which generation stops: EOS, EOT, and the usual end markers by name.
  bool is_end(int32_t token) const;
  // Id of a token by its exact text, -1 where there is none.
  int32_t find(std::string_view token) const;

 protected:
  explicit Tokenizer(TokenizerSpec spec);
  // Appends the ids of a text that holds no special tokens.
  virtual void encode_text(std::string_view text, bool after_special, std::vector<int32_t>* ids) const = 0;
  bool is_hidden(int32_t token) const;  // control or unknown: never the result of plain text
  TokenType type(int32_t token) const { return spec_.types[static_cast<size_t>(token)]; }

  TokenizerSpec spec_;

 private:
  int32_t special_at(std::string_view text, bool parse_special) const;

  std::unordered_map<std::string_view, int32_t> index_;          // views into spec_.tokens
  std::array<std::vector<int32_t>, 256> special_by_first_byte_;  // longest first
};

}  // namespace patina
