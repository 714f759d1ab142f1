// Training and evaluation data: text and JSONL files to token sequences with a supervision mask.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/tokenizer.h"

namespace patina {

// One sequence. supervised[i] = 1 says that token i is a label (predicted from the tokens before it); token 0 never is.
struct Sequence {
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
  int64_t sample = 0;  // index in the data set: stable, for random streams
  int64_t supervised_tokens() const;
};

// What is supervised: assistant turns (and completions), all tokens, or all after a marker text.
struct LossOn {
  enum class Kind : uint8_t { kAssistant, kAll, kAfterMarker };
  Kind kind = Kind::kAssistant;
  std::string marker;
};
// "assistant", "all", "after:MARKER". Error(kUsage) otherwise.
LossOn parse_loss_on(std::string_view text);

struct DatasetOptions {
  int64_t context_tokens = 512;  // longest sequence
  LossOn loss_on;
  std::string chat_template;     // override, see chat_style()
};

struct Dataset {
  std::vector<Sequence> sequences;
  int64_t read = 0, truncated = 0;
  std::map<std::string, int64_t> skipped;  // reason -> count
  int64_t tokens = 0, supervised_tokens = 0;
  std::string fingerprint;                 // SHA-256 of the file's bytes
};

// .txt: consecutive sequences of context_tokens (BOS first where the model wants one), the last one short; all tokens supervised.
// .jsonl: one object a line with `messages` (role, content), `prompt` + `completion`, or `text`. A sample longer than the context loses its
// end and counts as truncated; one without any supervised token left is skipped, with the reason counted.
// Error(kData) naming file and line: not UTF-8, not JSON, unknown fields, empty file, nothing supervised in the whole set.
Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer, const DatasetOptions& options);

// Text of the supervised spans of a sequence, for --show-mask: alternating unsupervised and supervised stretches.
std::string show_mask(const Sequence& sequence, const Tokenizer& tokenizer);

}  // namespace patina
