// A tokenizer whose ids can be told by looking: one token a byte.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "data/tokenizer.h"

namespace patina::testing {

constexpr int32_t kBos = 1, kEos = 2, kTurnBegin = 3, kTurnEnd = 4, kFirstByte = 5, kSpace = kFirstByte + 256;

// " 42" is one token, every other byte is one. </s> ends texts; the markers of ChatML are control tokens.
inline std::unique_ptr<Tokenizer> byte_tokenizer(bool add_bos = false) {
  TokenizerSpec spec;
  spec.model = "llama";
  spec.tokens = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  spec.types.assign(spec.tokens.size(), TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  spec.types.resize(spec.tokens.size(), TokenType::kByte);
  for (const char* text : {"\u2581", "\u25814", "\u258142"}) spec.tokens.push_back(text);
  spec.types.resize(spec.tokens.size(), TokenType::kNormal);
  spec.scores.assign(spec.tokens.size(), 0.0f);
  spec.bos = kBos;
  spec.eos = kEos;
  spec.unknown = 0;
  spec.add_bos = add_bos;
  spec.add_space_prefix = false;
  spec.chat_template = "<|im_start|> <|im_end|>";
  spec.source = "byte tokenizer";
  return Tokenizer::make(std::move(spec));
}

}  // namespace patina::testing
