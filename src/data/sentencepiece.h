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
  struct Workspace;
  int32_t find_text(std::string_view text) const;
  void merge_run(std::string_view run, Workspace* work, std::vector<int32_t>* ids) const;

  std::array<int32_t, 256> byte_token_;
  // No token reaches from one word into the next, so a text may be cut before every word: the same ids in a quarter of
  // the time (1 MB of English: 1.9 s as one run, 0.6 s cut).
  bool words_are_apart_ = true;
};

}  // namespace patina
