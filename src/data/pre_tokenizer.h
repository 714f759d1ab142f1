// How byte-level BPE cuts a text into words before it merges: the pattern that each vocabulary was trained with.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace patina {

struct PreTokenizer {
  std::string_view name;     // tokenizer.ggml.pre
  std::string_view pattern;  // PCRE2
  bool ignore_merges;        // a word that is a token is that token, whatever the merges say
  bool add_bos;              // where the file does not say
};

// nullptr where the name is unknown.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
std::string pre_tokenizer_names();  // "smollm, gpt-2, ..."

// A compiled pattern. Safe to use from several threads.
class WordSplitter {
 public:
  explicit WordSplitter(std::string_view pattern);
  ~WordSplitter();
  // Appends views of the words of the text; laid end to end they are the text. Bytes that are no UTF-8 match no
  // pattern: each run of them is a word of its own.
  void split(std::string_view text, std::vector<std::string_view>* words) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace patina
