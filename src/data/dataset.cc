#include "data/dataset.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "data/jsonl.h"
#include "data/text_file.h"

namespace patina {
namespace {

constexpr std::string_view kAfter = "after:", kFrom = "from:";
constexpr uint8_t kContext = 0, kLabel = 1;
constexpr uint32_t kHoldOutSite = 1;  // shuffling itself has site 0

// The tokens that hold any text behind the first occurrence of the marker in the decoded text, or behind where it
// begins. A token that holds the end of the marker and more is one of them: a marker that ends in a space would
// otherwise lose the first word (" 42" is one token).
std::vector<uint8_t> mask_by_marker(const std::vector<int32_t>& ids, const Tokenizer& tokenizer,
                                    const LossOn& loss_on) {
  std::string text;
  std::vector<size_t> ends;
  ends.reserve(ids.size());
  for (const int32_t id : ids) {
    text += tokenizer.piece(id, /*show_special=*/true);
    ends.push_back(text.size());
  }
  std::vector<uint8_t> mask(ids.size(), kContext);
  const size_t found = text.find(loss_on.marker);
  if (found == std::string::npos) return mask;
  const size_t begin = found + (loss_on.kind == LossOn::Kind::kAfterMarker ? loss_on.marker.size() : 0);
  for (size_t i = 0; i < ids.size(); ++i) mask[i] = ends[i] > begin;
  return mask;
}

class Loader {
 public:
  Loader(const std::filesystem::path& path, const Tokenizer& tokenizer, const DatasetOptions& options)
      : path_(path), tokenizer_(tokenizer), options_(options) {}

  Dataset load();

 private:
  void load_text(std::string_view text);
  void load_jsonl(std::string_view text);
  void load_line(std::string_view line, int64_t number);

  Sequence encode(const std::string& text) const;
  Sequence encode(const Completion& sample) const;
  Sequence encode(const std::vector<ChatMessage>& messages);
  std::vector<int32_t> begin() const;
  void choose_labels(Sequence* sequence) const;
  void add(Sequence sequence);
  std::string why_unsupervised(const Sequence& sequence) const;

  const std::filesystem::path& path_;
  const Tokenizer& tokenizer_;
  const DatasetOptions& options_;
  std::optional<ChatStyle> style_;  // found when the first conversation needs it
  std::optional<size_t> kind_;      // of the samples of a JSONL file
  int64_t kind_line_ = 0;
  Dataset data_;
};

Dataset Loader::load() {
  if (options_.context_tokens < 2)
    fail(Error::Kind::kUsage, "a context of {} tokens leaves nothing to predict; at least 2 are needed",
         options_.context_tokens);
  std::error_code ignored;  // reading the file says what is wrong with it
  if (std::filesystem::is_directory(path_, ignored))
    fail(Error::Kind::kData, "{}: is a directory; give a file that ends in .txt or .jsonl", path_.string());
  const std::string extension = path_.extension().string();
  if (extension != ".txt" && extension != ".jsonl" && std::filesystem::exists(path_, ignored))
    fail(Error::Kind::kData, "{}: expected a data set that ends in .txt or .jsonl; rename or convert the file",
         path_.string());
  const TextFile file = read_text_file(path_);
  if (is_blank(file.text))
    fail(Error::Kind::kData, "{}: expected text, found {}; give a data set with at least one sample", path_.string(),
         file.text.empty() ? "an empty file" : "white space only");
  data_.fingerprint = file.fingerprint;
  extension == ".txt" ? load_text(file.text) : load_jsonl(file.text);
  if (data_.sequences.empty()) {
    std::string reasons;
    for (const auto& [reason, count] : data_.skipped)
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ", reason, count);
    fail(Error::Kind::kData,
         "{}: no supervised token in any of {} samples ({}); give longer texts, raise --context or choose another "
         "--loss-on",
         path_.string(), data_.read, reasons);
  }
  return std::move(data_);
}

// The labels are chosen in the whole text before it is cut, so that a marker means the same for any context.
void Loader::load_text(std::string_view text) {
  Sequence whole{.ids = tokenizer_.encode(text, /*parse_special=*/false), .supervised = {}};
  whole.supervised.assign(whole.ids.size(), kLabel);
  choose_labels(&whole);
  const std::vector<int32_t> head = begin();
  const size_t step = static_cast<size_t>(options_.context_tokens) - head.size();
  for (size_t at = 0; at < whole.ids.size(); at += step) {
    const size_t end = at + std::min(step, whole.ids.size() - at);
    Sequence sequence{.ids = head, .supervised = std::vector<uint8_t>(head.size(), kContext)};
    sequence.ids.insert(sequence.ids.end(), whole.ids.begin() + at, whole.ids.begin() + end);
    sequence.supervised.insert(sequence.supervised.end(), whole.supervised.begin() + at,
                               whole.supervised.begin() + end);
    add(std::move(sequence));
  }
}

void Loader::load_jsonl(std::string_view text) {
  int64_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (!is_blank(line)) load_line(line, number);
  }
}

void Loader::load_line(std::string_view line, int64_t number) {
  const std::string where = fmt::format("{}:{}", path_.string(), number);
  const JsonlSample sample = parse_jsonl_line(line, where);
  if (!kind_) {
    kind_ = sample.text.index();
    kind_line_ = number;
  }
  if (*kind_ != sample.text.index())
    fail(Error::Kind::kData, "{}: expected the fields {} as in line {}, found {}; put each kind in a file of its own",
         where, jsonl_fields(*kind_), kind_line_, jsonl_fields(sample.text.index()));
  try {
    Sequence sequence = std::visit([this](const auto& value) { return encode(value); }, sample.text);
    sequence.weight = static_cast<float>(sample.weight);
    choose_labels(&sequence);
    add(std::move(sequence));
  } catch (const Error& error) {  // what the tokenizer and the chat format refuse
    if (error.kind() != Error::Kind::kData) throw;
    fail(Error::Kind::kData, "{}: {}", where, error.what());
  }
}

std::vector<int32_t> Loader::begin() const {
  const TokenizerSpec& spec = tokenizer_.spec();
  return spec.add_bos && spec.bos >= 0 ? std::vector<int32_t>{spec.bos} : std::vector<int32_t>{};
}

Sequence Loader::encode(const std::string& text) const {
  Sequence sequence{.ids = begin(), .supervised = {}};
  const std::vector<int32_t> ids = tokenizer_.encode(text, /*parse_special=*/false);
  sequence.ids.insert(sequence.ids.end(), ids.begin(), ids.end());
  sequence.supervised.assign(sequence.ids.size(), kLabel);
  return sequence;
}

// Prompt and completion are tokenized apart, as they will be when the model continues the prompt.
Sequence Loader::encode(const Completion& sample) const {
  Sequence sequence = encode(sample.prompt);
  sequence.supervised.assign(sequence.ids.size(), kContext);
  const std::vector<int32_t> ids =
      tokenizer_.encode(sample.completion, /*parse_special=*/false, /*after_special=*/sample.prompt.empty());
  sequence.ids.insert(sequence.ids.end(), ids.begin(), ids.end());
  const TokenizerSpec& spec = tokenizer_.spec();
  if (const int32_t end = spec.eos >= 0 ? spec.eos : spec.eot; end >= 0) sequence.ids.push_back(end);
  sequence.supervised.resize(sequence.ids.size(), kLabel);
  return sequence;
}

Sequence Loader::encode(const std::vector<ChatMessage>& messages) {
  data_.chat = true;
  if (!style_) style_ = chat_style(tokenizer_.spec(), options_.chat_template);
  RenderedChat chat = render_chat(tokenizer_, *style_, messages, /*open_assistant=*/false);
  return {.ids = std::move(chat.ids), .supervised = std::move(chat.supervised)};
}

// Replaces the labels of answers where others are asked for.
void Loader::choose_labels(Sequence* sequence) const {
  const LossOn& loss_on = options_.loss_on;
  if (loss_on.kind == LossOn::Kind::kAll) sequence->supervised.assign(sequence->ids.size(), kLabel);
  if (loss_on.kind == LossOn::Kind::kAfterMarker || loss_on.kind == LossOn::Kind::kFromMarker)
    sequence->supervised = mask_by_marker(sequence->ids, tokenizer_, loss_on);
}

std::string Loader::why_unsupervised(const Sequence& sequence) const {
  if (sequence.ids.size() < 2) return "fewer than two tokens";
  if (options_.loss_on.kind == LossOn::Kind::kAfterMarker)
    return fmt::format("no text after the marker {}", json_quoted(options_.loss_on.marker));
  if (options_.loss_on.kind == LossOn::Kind::kFromMarker)
    return fmt::format("no marker {}", json_quoted(options_.loss_on.marker));
  return "no answer";
}

void Loader::add(Sequence sequence) {
  PATINA_CHECK(sequence.ids.size() == sequence.supervised.size(), "{} ids, {} marks", sequence.ids.size(),
               sequence.supervised.size());
  sequence.sample = data_.read++;
  if (!sequence.ids.empty()) sequence.supervised[0] = kContext;
  if (sequence.supervised_tokens() == 0) {
    ++data_.skipped[why_unsupervised(sequence)];
    return;
  }
  if (const size_t context = static_cast<size_t>(options_.context_tokens); sequence.ids.size() > context) {
    ++data_.truncated;
    sequence.ids.resize(context);
    sequence.supervised.resize(context);
    if (sequence.supervised_tokens() == 0) {
      ++data_.skipped[fmt::format("no supervised token left after truncation to {} tokens", context)];
      return;
    }
  }
  data_.tokens += static_cast<int64_t>(sequence.ids.size());
  data_.supervised_tokens += sequence.supervised_tokens();
  data_.sequences.push_back(std::move(sequence));
}

}  // namespace

int64_t Sequence::supervised_tokens() const {
  return std::accumulate(supervised.begin() + !supervised.empty(), supervised.end(), int64_t{0});
}

int64_t Dataset::memory_bytes() const {
  size_t bytes = sequences.capacity() * sizeof(Sequence);
  for (const Sequence& sequence : sequences)
    bytes += sequence.ids.capacity() * sizeof(int32_t) + sequence.supervised.capacity();
  return static_cast<int64_t>(bytes);
}

LossOn parse_loss_on(std::string_view text) {
  if (text == "assistant") return {LossOn::Kind::kAssistant, {}};
  if (text == "all") return {LossOn::Kind::kAll, {}};
  if (text.starts_with(kAfter) && text.size() > kAfter.size())
    return {LossOn::Kind::kAfterMarker, std::string(text.substr(kAfter.size()))};
  if (text.starts_with(kFrom) && text.size() > kFrom.size())
    return {LossOn::Kind::kFromMarker, std::string(text.substr(kFrom.size()))};
  fail(Error::Kind::kUsage, "--loss-on: expected assistant, all, after:MARKER or from:MARKER, found {}",
       json_quoted(text));
}

Dataset load_dataset(const std::filesystem::path& path, const Tokenizer& tokenizer, const DatasetOptions& options) {
  return Loader(path, tokenizer, options).load();
}

Dataset load_datasets(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                      const DatasetOptions& options) {
  PATINA_CHECK(!paths.empty(), "no data set");
  Dataset all = load_dataset(paths.front(), tokenizer, options);
  if (paths.size() == 1) return all;
  Sha256 fingerprints;
  fingerprints.update(all.fingerprint);
  for (const std::filesystem::path& path : paths.subspan(1)) {
    Dataset more = load_dataset(path, tokenizer, options);
    for (Sequence& sequence : more.sequences) {
      sequence.sample += all.read;
      all.sequences.push_back(std::move(sequence));
    }
    all.chat = all.chat || more.chat;
    all.read += more.read;
    all.truncated += more.truncated;
    for (const auto& [reason, count] : more.skipped) all.skipped[reason] += count;
    all.tokens += more.tokens;
    all.supervised_tokens += more.supervised_tokens;
    fingerprints.update(more.fingerprint);
  }
  all.fingerprint = fingerprints.hex_digest();
  return all;
}

std::vector<Sequence> hold_out(Dataset& data, double fraction, uint64_t seed) {
  const size_t count = data.sequences.size();
  const size_t wanted = std::max<size_t>(1, static_cast<size_t>(fraction * static_cast<double>(count) + 0.5));
  if (wanted >= count)
    fail(Error::Kind::kUsage, "a fraction of {} of {} samples to validate on leaves none to train on", fraction, count);
  // Those with the smallest number of a stream that is indexed by sample: their order in the file does not matter.
  const RandomStream random(seed, RandomUse::kShuffle, kHoldOutSite);
  std::vector<std::pair<double, size_t>> drawn;
  for (size_t i = 0; i < count; ++i)
    drawn.emplace_back(random.uniform(static_cast<uint64_t>(data.sequences[i].sample)), i);
  std::sort(drawn.begin(), drawn.end());
  std::vector<uint8_t> held(count, 0);
  for (size_t i = 0; i < wanted; ++i) held[drawn[i].second] = 1;
  std::vector<Sequence> rest, out;
  for (size_t i = 0; i < count; ++i) (held[i] ? out : rest).push_back(std::move(data.sequences[i]));
  data.sequences = std::move(rest);
  for (const Sequence& sequence : out) {
    data.tokens -= static_cast<int64_t>(sequence.ids.size());
    data.supervised_tokens -= sequence.supervised_tokens();
  }
  return out;
}

std::string show_mask(const Sequence& sequence, const Tokenizer& tokenizer) {
  std::string shown;
  for (size_t begin = 0, end = 0; begin < sequence.ids.size(); begin = end) {
    std::string text;
    for (; end < sequence.ids.size() && sequence.supervised[end] == sequence.supervised[begin]; ++end)
      text += tokenizer.piece(sequence.ids[end], /*show_special=*/true);
    shown += fmt::format("{} {}\n", sequence.supervised[begin] ? '+' : '-', json_quoted(text));
  }
  return shown;
}

}  // namespace patina
