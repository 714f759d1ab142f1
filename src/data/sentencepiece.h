// SentencePiece's byte-pair model (Kudo and Richardson, "SentencePiece", 2018): characters are merged in the order of
// the scores of the tokens they form; what forms no token becomes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace patina {

class SentencePiece : public Tokenizer {
 public:
  explicit SentencePiece(TokenizerSpec spec);
  std::string piece(int32_t token, bool show_special) const override;

 protected:
  void encode_text(std::string_view text, bool after_special, std::vector<int32_t>* ids) const override;

 private:
  int32_t find_text(std::string_view text) const;

  std::array<int32_t, 256> byte_token_;
};

}  // namespace patina
