// Training and evaluation data: text and JSONL files to token sequences with a supervision mask.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"
#include "data/tokenizer.h"

namespace patina {

// One sequence. supervised[i] = 1 says that token i is a label (predicted from the tokens before it); token 0 never is.
struct Sequence {
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
  float weight = 1.0f;  // of each of its tokens in the loss
  int64_t sample = 0;   // index among the samples read, skipped ones included: stable, for random streams
  int64_t supervised_tokens() const;
};

// What is supervised. kAssistant: assistant turns with their end markers, and completions; plain text has neither and
// is supervised whole. kAll: every token. kAfterMarker: every token that holds text after the first occurrence of
// `marker` in the decoded sample (special tokens in it count as their text), be it a conversation, a completion or
// plain text. kFromMarker: the same with the marker's own text.
struct LossOn {
  enum class Kind : uint8_t { kAssistant, kAll, kAfterMarker, kFromMarker };
  Kind kind = Kind::kAssistant;
  std::string marker;
};
// "assistant", "all", "after:MARKER", "from:MARKER". Error(kUsage) otherwise.
LossOn parse_loss_on(std::string_view text);

struct DatasetOptions {
  int64_t context_tokens = 512;  // longest sequence
  LossOn loss_on;
  std::string chat_template;  // override, see chat_style()
};

struct Dataset {
  std::vector<Sequence> sequences;         // those used: each has a supervised token
  bool chat = false;                       // conversations, in a chat format
  int64_t read = 0, truncated = 0;         // samples; read = used + skipped
  std::map<std::string, int64_t> skipped;  // reason -> count
  int64_t tokens = 0, supervised_tokens = 0;
  std::string fingerprint;       // SHA-256 of the file's bytes
  int64_t memory_bytes() const;  // what the sequences take
};

// Reads a data set.
//
// .txt: one text, cut into consecutive sequences of context_tokens, the last one short. Each begins with BOS where the
// model wants one; else the first token of each is no label. For after:MARKER and from:MARKER the marker is looked for
// in the whole text.
//
// .jsonl: one object a line, all lines of one kind; blank lines count as nothing.
//   messages (role, content): rendered in the model's chat format.
//   prompt + completion: BOS where the model wants one, the prompt, the completion, EOS; no chat format.
//   text: BOS where the model wants one, then the text.
// A line may also have a weight, a number above 0: how much each of its tokens counts in the loss of training.
//
// In texts, prompts and completions what looks like a special token is text, and line ends stay as they are. A JSONL
// sample longer than the context loses its end and counts as truncated; a sample without a supervised token (left) is
// skipped, with the reason counted.
//
// Error(kData) naming file and line: not UTF-8, not JSON, unknown fields or roles, kinds mixed; naming the file:
// another ending, nothing but white space, nothing supervised in the whole set. Error(kModel) where messages meet a
// model without a known chat format. Error(kUsage) for a context below 2.
Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer, const DatasetOptions& options);

// Several files, one behind the other, each of a kind of its own. The fingerprint of more than one is the SHA-256 of
// theirs, in order.
Dataset load_datasets(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                      const DatasetOptions& options);

// Takes a fraction of the sequences, at least one, out of a data set, to validate on; the same for a seed. What was
// skipped or truncated stays counted where it was. Error(kUsage) where none would be left.
std::vector<Sequence> hold_out(Dataset& data, double fraction, uint64_t seed);

// A sequence in one line a stretch, for --show-mask: `- "text"` is context, `+ "text"` is supervised. Special tokens
// are shown.
std::string show_mask(const Sequence& sequence, const Tokenizer& tokenizer);

}  // namespace patina
