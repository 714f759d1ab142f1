// One line of a JSONL data set.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/chat.h"

namespace patina {

struct Completion {
  std::string prompt, completion;
};

// {"text": "..."} | {"prompt": "...", "completion": "..."} | {"messages": [{"role": "...", "content": "..."}, ...]}
using JsonlText = std::variant<std::string, Completion, std::vector<ChatMessage>>;

struct JsonlSample {
  JsonlText text;
  double weight = 1.0;  // of the sample in the loss
};

// Each kind may also have a `weight`, a number above 0. Error(kData) that begins with `where` (file:line): not JSON,
// not exactly the fields of one kind, a value of another type, or no messages. Fields we do not know are refused, as
// they may change the meaning (`tools`). Roles are not checked here.
JsonlSample parse_jsonl_line(std::string_view line, std::string_view where);

// The fields of a kind of sample, by the index of the variant.
std::string_view jsonl_fields(size_t kind);

}  // namespace patina
