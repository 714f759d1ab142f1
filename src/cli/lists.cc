#include "cli/lists.h"

#include "quant/decode.h"

namespace patina {

namespace {

DType read_type(const char* flag, std::string_view word) {
  std::string known;
  for (const DTypeInfo& row : all_dtypes()) {
    if (!is_decodable(row.dtype)) continue;
    if (row.name == word) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(Error::Kind::kUsage, "{}: \"{}\" is no weight type that Patina reads; choose from {}", flag, word, known);
}

Formulation read_formulation(const char* flag, std::string_view word) {
  std::string known;
  for (const FormulationName& row : kFormulations) {
    if (row.name == word) return row.formulation;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(Error::Kind::kUsage, "{}: \"{}\" is none; choose from {}", flag, word, known);
}

std::string read_word(const char* flag, std::string_view word) {
  if (word.empty()) fail(Error::Kind::kUsage, "{}: expected names with commas between them, found an empty one", flag);
  return std::string(word);
}

}  // namespace

std::vector<DType> read_types(const char* flag, std::string_view text) { return read_list(flag, text, read_type); }
std::vector<Formulation> read_formulations(const char* flag, std::string_view text) {
  return read_list(flag, text, read_formulation);
}
std::vector<std::string> read_words(const char* flag, std::string_view text) {
  return read_list(flag, text, read_word);
}

}  // namespace patina
