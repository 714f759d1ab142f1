// patina inspect: what a model file or an adapter holds.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/adapter_facts.h"
#include "cli/common.h"
#include "cli/console.h"
#include "data/chat.h"
#include "data/tokenizer_gguf.h"
#include "formats/fingerprint.h"
#include "formats/safetensors.h"

namespace patina {

namespace {

using Json = nlohmann::ordered_json;

// The facts of a file, in order, as JSON and as text for people.
class Report {
 public:
  // A fact without a text is for JSON only.
  void add(const std::string& key, Json value, const std::string& label = "", const std::string& text = "") {
    json_[key] = std::move(value);
    if (!label.empty()) text_ += fmt::format("{:<15} {}\n", label, text);
  }
  void add_number(const std::string& key, int64_t value, const std::string& label) {
    add(key, value, label, grouped(value));
  }
  void add_text(const std::string& key, const std::string& value, const std::string& label) {
    add(key, value, label, value);
  }
  void print(bool json) const {
    write_out(json ? json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text_);
  }
  void add_line(const std::string& line) { text_ += line + "\n"; }

 private:
  Json json_;
  std::string text_;
};

// GgufTensor and SafetensorsTensor alike.
template <typename TensorInfo>
void add_tensors(Report& report, std::span<const TensorInfo> tensors, bool list) {
  struct Count {
    int64_t tensors = 0, bytes = 0;
  };
  std::map<std::string_view, Count> types;
  int64_t parameters = 0, bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    Count& count = types[name(tensor.dtype)];
    ++count.tensors;
    count.bytes += tensor.bytes;
    bytes += tensor.bytes;
    parameters += tensor.shape.elements();
  }
  report.add_number("parameters", parameters, "parameters");
  Json type_object = Json::object();
  std::string text;
  for (const auto& [type, count] : types) {
    type_object[std::string(type)] = {{"count", count.tensors}, {"bytes", count.bytes}};
    text += fmt::format("{}{} x {} ({})", text.empty() ? "" : ", ", type, count.tensors, bytes_text(count.bytes));
  }
  report.add("types", type_object, "types", text);
  report.add("tensorBytes", bytes, "tensors", fmt::format("{}, {}", tensors.size(), bytes_text(bytes)));
  if (!list) return;
  Json array = Json::array();
  for (const TensorInfo& tensor : tensors) {
    array.push_back(
        {{"name", tensor.name}, {"type", name(tensor.dtype)}, {"shape", tensor.shape.dims()}, {"bytes", tensor.bytes}});
    report.add_line(fmt::format("  {:<44} {:<5} {:<16} {}", tensor.name, name(tensor.dtype), tensor.shape.str(),
                                bytes_text(tensor.bytes)));
  }
  report.add("tensors", array);
}

// An integer of the metadata, whatever the rest of the file is like: inspect also shows models that Patina cannot
// train.
std::optional<int64_t> find_int(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return std::nullopt;
  const auto* scalar = std::get_if<GgufScalar>(&found->second);
  if (scalar == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(scalar)) return static_cast<int64_t>(*number);
  if (const auto* number = std::get_if<int64_t>(scalar)) return *number;
  return std::nullopt;
}

void add_sizes(Report& report, const GgufFile& file, const std::string& architecture) {
  const auto add = [&](const std::string& key, std::optional<int64_t> value, const std::string& label) {
    if (value) report.add_number(key, *value, label);
  };
  const auto size = [&](std::string_view key) { return find_int(file, fmt::format("{}.{}", architecture, key)); };
  add("layers", size("block_count"), "layers");
  add("width", size("embedding_length"), "width D");
  add("feedForward", size("feed_forward_length"), "feed-forward F");
  const std::optional<int64_t> heads = size("attention.head_count"), width = size("embedding_length");
  add("heads", heads, "heads H");
  const std::optional<int64_t> kv_heads = size("attention.head_count_kv");
  add("kvHeads", kv_heads ? kv_heads : heads, "kv heads G");
  std::optional<int64_t> head_width = size("attention.key_length");
  if (!head_width && heads.value_or(0) > 0 && width) head_width = *width / *heads;
  add("headWidth", head_width, "head width C");
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding != nullptr) add("vocab", embedding->shape[0], "vocabulary V");
  add("context", size("context_length"), "context");
  const bool tied = file.find_tensor("output.weight") == nullptr;
  report.add("tiedHead", tied, "output head", tied ? "shares the weight of the embedding" : "has a weight of its own");
}

void add_tokenizer(Report& report, const TokenizerSpec& spec) {
  std::string format = "none";
  if (!spec.chat_template.empty()) {
    format = "unknown";
    try {
      format = chat_format_names().at(static_cast<size_t>(chat_style(spec, "").format));
    } catch (const Error&) {
    }
  }
  report.add("tokenizer", {{"model", spec.model}, {"pre", spec.pre}, {"tokens", spec.tokens.size()}}, "tokenizer",
             fmt::format("{}{}, {} tokens", spec.model, spec.pre.empty() ? "" : " / " + spec.pre,
                         grouped(static_cast<int64_t>(spec.tokens.size()))));
  report.add_text("chatFormat", format, "chat format");
}

Report inspect_model(const GgufFile& file, bool list) {
  Report report;
  const std::string architecture = file.string_or("general.architecture", "unknown");
  report.add("path", file.path().string(), "model", file.path().string());
  report.add("format", "gguf", "format",
             fmt::format("GGUF version {}, {}", file.version(), bytes_text(file.file_bytes())));
  report.add("bytes", file.file_bytes());
  if (const std::string title = file.string_or("general.name", ""); !title.empty())
    report.add_text("name", title, "name");
  report.add_text("architecture", architecture, "architecture");
  add_sizes(report, file, architecture);
  std::string obstacle;
  try {
    const TokenizerSpec spec = tokenizer_spec_from_gguf(file);
    add_tokenizer(report, spec);
    Tokenizer::make(spec);
    load_language_model(file.path());
  } catch (const Error& error) {
    obstacle = error.what();
  }
  report.add_text("fingerprint", model_fingerprint(file), "fingerprint");
  report.add("trainLm", {{"supported", obstacle.empty()}, {"reason", obstacle}}, "train-lm",
             obstacle.empty() ? "supported" : "not supported: " + obstacle);
  add_tensors(report, file.tensors(), list);
  return report;
}

// "0-29" or "0-3, 7".
std::string ranges_text(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += (text.empty() ? "" : ", ") + (first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return text;
}

Report inspect_adapter(const std::filesystem::path& path) {
  AdapterBase base;  // layers and the order of rows are not known, and change no figure here
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored) && path.extension() != ".safetensors")
    base.architecture = GgufFile::open(path).string_or("general.architecture", "");
  base.family = adapter_family(path);
  const AdapterFile adapter = read_adapter(path, base);
  const AdapterFacts facts = adapter_facts(adapter.sites);
  Report report;
  report.add("path", path.string(), "adapter", path.string());
  report.add_text("format", adapter.format, "format");
  report.add_text("adapterType", fmt::format("{}", fmt::join(facts.kinds, ", ")), "type");
  report.add("rank", facts.ranks, "rank", fmt::format("{}", fmt::join(facts.ranks, ", ")));
  report.add("alpha", facts.alphas, "alpha", fmt::format("{}", fmt::join(facts.alphas, ", ")));
  report.add("sites", facts.sites, "sites", fmt::format("{}", fmt::join(facts.sites, ", ")));
  report.add("layers", facts.layers, "layers", ranges_text(facts.layers));
  report.add("pairs", adapter.sites.size(), "adapted layers", fmt::to_string(adapter.sites.size()));
  report.add_number("parameters", facts.parameters, "parameters");
  if (!facts.lokr.empty()) report.add("factors", facts.lokr, "factors", fmt::format("{}", fmt::join(facts.lokr, "; ")));
  report.add_text("baseModel", adapter.base_model, "base model");
  for (const auto& [key, value] : adapter.metadata) report.add_text(key, value, key);
  return report;
}

Report inspect_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  Report report;
  report.add("path", path.string(), "file", path.string());
  report.add("format", "safetensors", "format", "safetensors");
  report.add("metadata", file.metadata());
  for (const auto& [key, value] : file.metadata()) report.add_line(fmt::format("{:<15} {}", key, value));
  add_tensors(report, file.tensors(), true);
  return report;
}

Report inspect(const std::filesystem::path& path, bool list_tensors) {
  if (looks_like_adapter(path)) return inspect_adapter(path);
  if (path.extension() == ".safetensors") return inspect_safetensors(path);
  return inspect_model(GgufFile::open(path), list_tensors);
}

}  // namespace

int run_inspect(const Command& command, int argc, char** argv) {
  std::string path;
  bool json = false, list_tensors = false;
  CommandLine line(command);
  line.add_option("PATH", path, "A GGUF model, an adapter in any format, or a safetensors file.")->required();
  line.add_flag("--json", json, "Print one JSON object.");
  line.add_flag("--tensors", list_tensors, "List every tensor.");
  if (!line.read(argc, argv)) return 0;
  inspect(path, list_tensors).print(json);
  return 0;
}

}  // namespace patina
