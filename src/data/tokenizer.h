// Text to token ids and back, from the tables that a model file carries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace patina {

// GGUF's tokenizer.ggml.token_type values.
enum class TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The tables of a tokenizer, whatever file they came from.
struct TokenizerSpec {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;    // pre-tokenizer name for byte-level BPE: "smollm", "gpt-2", "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // as long as tokens
  std::vector<float> scores;        // SentencePiece only
  std::vector<std::string> merges;  // byte-level BPE only: "left right"
  int32_t bos = -1, eos = -1, unknown = -1, eot = -1;  // -1 where the file names none
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = true;  // SentencePiece only
  std::string chat_template;     // Jinja text, may be empty
  std::string source;            // path, for messages
};

class Tokenizer {
 public:
  // Error(kModel) naming the source where the model or pre-tokenizer is unknown (with the list of known ones), the vocabulary is
  // empty, or the tables disagree.
  static std::unique_ptr<Tokenizer> make(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  // Ids of a text, without BOS or EOS. parse_special = false: text that looks like a special token stays text.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special) const = 0;
  // The bytes of one token; control tokens give their text only where show_special.
  virtual std::string piece(int32_t token, bool show_special = false) const = 0;
  // The bytes of a sequence. SentencePiece's leading space of the first token is removed where the file adds one.
  std::string decode(const std::vector<int32_t>& tokens, bool show_special = false) const;

  const TokenizerSpec& spec() const { return spec_; }
  int32_t vocabulary() const { return static_cast<int32_t>(spec_.tokens.size()); }
  // True for tokens after which generation stops: EOS, EOT, and the usual end markers by name.
  bool is_end(int32_t token) const;
  // Id of a token by its exact text, -1 where there is none.
  int32_t find(std::string_view token) const;

 protected:
  explicit Tokenizer(TokenizerSpec spec);
  TokenizerSpec spec_;
};

}  // namespace patina
