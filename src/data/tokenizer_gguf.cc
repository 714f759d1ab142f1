#include "data/tokenizer_gguf.h"

#include "base/error.h"
#include "data/pre_tokenizer.h"

namespace patina {
namespace {

int32_t token_id_or(const GgufFile& file, std::string_view key, int32_t fallback, size_t vocabulary) {
  const int64_t id = file.int_or(key, fallback);
  if (file.has(key) && (id < 0 || id >= static_cast<int64_t>(vocabulary)))
    fail(Error::Kind::kModel, "{}: {} is {}, but the vocabulary has {} tokens; the file is damaged, get it again",
         file.path().string(), key, id, vocabulary);
  return id < static_cast<int64_t>(vocabulary) ? static_cast<int32_t>(id) : -1;
}

}  // namespace

TokenizerSpec tokenizer_spec_from_gguf(const GgufFile& file) {
  TokenizerSpec spec;
  spec.source = file.path().string();
  spec.model = file.require_string("tokenizer.ggml.model");
  spec.pre = file.string_or("tokenizer.ggml.pre", "");
  for (const std::string_view token : file.strings_or_empty("tokenizer.ggml.tokens")) spec.tokens.emplace_back(token);
  for (const std::string_view merge : file.strings_or_empty("tokenizer.ggml.merges")) spec.merges.emplace_back(merge);
  for (const double score : file.floats_or_empty("tokenizer.ggml.scores"))
    spec.scores.push_back(static_cast<float>(score));
  if (file.has("tokenizer.ggml.token_type")) {
    for (const int64_t type : file.ints_or_empty("tokenizer.ggml.token_type")) {
      if (type < 1 || type > 6)
        fail(Error::Kind::kModel, "{}: tokenizer.ggml.token_type has the value {}, known are 1 to 6", spec.source,
             type);
      spec.types.push_back(static_cast<TokenType>(type));
    }
  } else {
    spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  }

  const bool sentencepiece = spec.model == "llama";
  const PreTokenizer* pre = sentencepiece ? nullptr : find_pre_tokenizer(spec.pre);
  const size_t vocabulary = spec.tokens.size();
  spec.bos = token_id_or(file, "tokenizer.ggml.bos_token_id", sentencepiece ? 1 : -1, vocabulary);
  spec.eos = token_id_or(file, "tokenizer.ggml.eos_token_id", sentencepiece ? 2 : -1, vocabulary);
  spec.unknown = token_id_or(file, "tokenizer.ggml.unknown_token_id", sentencepiece ? 0 : -1, vocabulary);
  spec.eot = token_id_or(file, "tokenizer.ggml.eot_token_id", -1, vocabulary);
  spec.add_bos = file.bool_or("tokenizer.ggml.add_bos_token", sentencepiece || (pre != nullptr && pre->add_bos));
  spec.add_eos = file.bool_or("tokenizer.ggml.add_eos_token", false);
  spec.add_space_prefix = sentencepiece && file.bool_or("tokenizer.ggml.add_space_prefix", true);
  spec.chat_template = file.string_or("tokenizer.chat_template", "");
  return spec;
}

}  // namespace patina
