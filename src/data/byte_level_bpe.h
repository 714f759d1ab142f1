// Byte-level byte-pair encoding, as introduced with GPT-2 (Radford et al., "Language models are unsupervised multitask
// learners", 2019): words of bytes, merged pair by pair in the order of the merge table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/pre_tokenizer.h"
#include "data/tokenizer.h"

namespace patina {

class ByteLevelBpe : public Tokenizer {
 public:
  explicit ByteLevelBpe(TokenizerSpec spec);
  std::string piece(int32_t token, bool show_special) const override;

 protected:
  void encode_text(std::string_view text, bool after_special, std::vector<int32_t>* ids) const override;

 private:
  struct Merge {
    int32_t rank, result;
  };
  struct Workspace;
  void merge_word(std::string_view word, Workspace* work, std::vector<int32_t>* ids) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  const PreTokenizer* pre_;
  WordSplitter splitter_;
  std::array<int32_t, 256> byte_token_;
  std::unordered_map<uint64_t, Merge> merges_;  // left token << 32 | right token
};

}  // namespace patina
