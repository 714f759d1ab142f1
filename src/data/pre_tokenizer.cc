#include "data/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"

// Unicode's White_Space property, as the members of a class. PCRE2's own \s also takes U+180E, which is none.
#define SPACE R"(\t-\r\x{85}\p{Z})"
#define ANY_CASE_CONTRACTION R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"

namespace patina {
namespace {

// Llama 3 and Qwen 2 differ only in how many digits make a word.
#define LLAMA3_PATTERN(DIGITS)                                                                                      \
  ANY_CASE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{)" DIGITS "}| ?[^" SPACE R"(\p{L}\p{N}]+[\r\n]*|[)" SPACE \
                       R"(]*[\r\n]+|[)" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" SPACE R"(\p{L}\p{N}]+|[)" SPACE
                                   "]+(?![^" SPACE "])|[" SPACE "]+";
// SmolLM cuts out every digit first and applies the GPT-2 pattern to what lies between: a digit is a word, and white
// space in front of one ends its piece, so it is not split.
constexpr std::string_view kSmolLm = R"(\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^)" SPACE R"(\p{L}\p{N}]+|[)" SPACE
                                     "]+(?![^" SPACE R"(\p{N}])|[)" SPACE "]+";
constexpr std::string_view kLlama3 = LLAMA3_PATTERN("1,3");
constexpr std::string_view kQwen2 = LLAMA3_PATTERN("1");

constexpr std::array<PreTokenizer, 6> kPreTokenizers = {{
    {"smollm", kSmolLm, false, false},
    {"gpt-2", kGpt2, false, false},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"qwen2", kQwen2, false, false},
}};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizer& pre : kPreTokenizers)
    if (pre.name == name) return &pre;
  return nullptr;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const PreTokenizer& pre : kPreTokenizers) names.append(names.empty() ? "" : ", ").append(pre.name);
  return names;
}

struct WordSplitter::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

WordSplitter::WordSplitter(std::string_view pattern) : compiled_(std::make_unique<Compiled>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  PATINA_CHECK(compiled_->code != nullptr, "pre-tokenizer pattern: PCRE2 error {} at {}", error, at);
  pcre2_jit_compile(compiled_->code,
                    PCRE2_JIT_COMPLETE);  // where it cannot, PCRE2 interprets the pattern: slower, same words
}

WordSplitter::~WordSplitter() = default;

void WordSplitter::split(std::string_view text, std::vector<std::string_view>* words) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  pcre2_match_data_free);
  PATINA_CHECK(match != nullptr, "no memory for a match");
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0,
                                  match.get(), nullptr);
    PATINA_CHECK(found > 0 || found == PCRE2_ERROR_NOMATCH, "PCRE2 error {} at byte {} of {}", found, at, text.size());
    const size_t begin = found > 0 ? range[0] : text.size();
    if (begin > at) words->push_back(text.substr(at, begin - at));
    if (found <= 0) return;
    PATINA_CHECK(range[1] > begin, "empty word at byte {}", begin);
    words->push_back(text.substr(begin, range[1] - begin));
    at = range[1];
  }
}

}  // namespace patina
