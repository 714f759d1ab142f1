// Tokenizers rebuilt from the goldens that tools/make_tokenizer_goldens.py wrote.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "data/tokenizer.h"

namespace patina::testing {

inline nlohmann::json read_golden(const std::string& name) {
  const std::string path = std::string(PATINA_SOURCE_DIR) + "/tests/data/goldens/" + name + ".json";
  std::ifstream file(path);
  PATINA_CHECK(file.good(), "no {}", path);
  return nlohmann::json::parse(file);
}

// Ids that the golden left out have no text, so nothing leads to them.
inline TokenizerSpec golden_spec(const nlohmann::json& golden) {
  TokenizerSpec spec;
  spec.source = "golden";
  spec.model = golden["model"];
  spec.pre = golden["pre"];
  spec.bos = golden["bos"];
  spec.eos = golden["eos"];
  spec.unknown = golden["unknown"];
  spec.add_space_prefix = golden["add_space_prefix"];
  const size_t size = golden["size"];
  spec.tokens.resize(size);
  spec.types.resize(size, TokenType::kNormal);
  if (spec.model == "llama") spec.scores.resize(size, 0.0f);
  for (const auto& token : golden["tokens"]) {
    const size_t id = token[0];
    spec.tokens[id] = token[1];
    spec.types[id] = static_cast<TokenType>(token[2].get<int>());
    if (spec.model == "llama") spec.scores[id] = token[3];
  }
  for (const auto& merge : golden["merges"]) spec.merges.push_back(merge);
  return spec;
}

}  // namespace patina::testing
