#include "cli/common.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/threads.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "data/tokenizer_gguf.h"

namespace patina {

LanguageModel load_language_model(const std::filesystem::path& path) {
  const auto start = std::chrono::steady_clock::now();
  LanguageModel model{DecoderModel::load(path), nullptr, 0.0};
  watch_mapped_file(model.weights.file().bytes(), path.string());
  model.tokenizer = Tokenizer::make(tokenizer_spec_from_gguf(model.weights.file()));
  if (model.tokenizer->vocabulary() > model.weights.config().vocabulary)
    fail(Error::Kind::kModel,
         "{}: the tokenizer has {} tokens, token_embd.weight only {} rows; the file is damaged, get it again",
         path.string(), model.tokenizer->vocabulary(), model.weights.config().vocabulary);
  model.load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return model;
}

AdapterBase adapter_base(const DecoderModel& model) {
  AdapterBase base;
  base.name = model.file().path().stem().string();
  base.architecture = model.config().architecture;
  base.layers = model.config().layers;
  base.row_map = [&model](int, std::string_view site) { return model.row_map(site); };
  return base;
}

AdapterBase adapter_base(const DitModel& model) {
  AdapterBase base;
  const std::filesystem::path path = model.files().path();
  // Files of one name lie in directories that tell them apart.
  base.name = (path.stem().string().starts_with("diffusion_pytorch_model") || path.stem() == "model"
                   ? std::filesystem::absolute(path).parent_path().filename()
                   : path.stem())
                  .string();
  base.architecture = kDitArchitecture;
  base.family = ModelFamily::kDit;
  base.layers = model.config().layers;
  return base;
}

namespace {

template <typename Model>
AdapterFile read_fitting(const Model& model, const std::filesystem::path& model_path,
                         const std::filesystem::path& path) {
  AdapterFile file = read_adapter(path, adapter_base(model));
  in_model_order(model.sites(), file.sites, path.string());
  const auto trained_on = file.metadata.find(kBaseFingerprint);
  if (trained_on != file.metadata.end() && trained_on->second != model.fingerprint())
    say("patina: warning: {}: this adapter was trained on another model file than {}\n", path.string(),
        model_path.string());
  return file;
}

}  // namespace

AdapterFile read_fitting_adapter(const DecoderModel& model, const std::filesystem::path& path) {
  return read_fitting(model, model.file().path(), path);
}

AdapterFile read_fitting_adapter(const DitModel& model, const std::filesystem::path& path) {
  return read_fitting(model, model.files().path(), path);
}

std::unique_ptr<Adapter> load_adapter(const DecoderModel& model, const std::filesystem::path& path) {
  if (path.empty()) return nullptr;
  return std::make_unique<Adapter>(model.sites(), read_fitting_adapter(model, path).sites, path.string());
}

int64_t resolve_context(const DecoderModel& model, int64_t context_tokens, bool given) {
  const int64_t most = model.config().context_tokens;
  if (given && context_tokens > most)
    fail(Error::Kind::kUsage, "--context {} is more than the {} tokens that {} was made for; choose at most that",
         context_tokens, most, model.file().path().string());
  return std::min(context_tokens, most);
}

void add_threads_option(CommandLine& line, int& threads) {
  threads = default_threads();
  // More than the machine has is slow, far more can only be a mistake.
  const int most = 4 * static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  line.option("--threads", threads, "N", "Threads; the default is the physical cores of this machine.")
      ->check(quiet(CLI::Range(1, most)));
}

void add_chat_template_option(CommandLine& line, std::string& name) {
  const std::vector<std::string_view> known = chat_format_names();
  line.option("--chat-template", name, "NAME",
              "Chat format to use instead of the one that the model file's own template is: chatml, llama3 or mistral.")
      ->check(quiet(CLI::IsMember(std::vector<std::string>(known.begin(), known.end()))));
}

CLI::Validator stored_type(std::vector<std::string> names) { return quiet(CLI::IsMember(std::move(names))); }

DType parse_stored_type(const std::string& name) {
  const auto row = std::ranges::find_if(all_dtypes(), [&](const DTypeInfo& info) {
    return std::ranges::equal(name, info.name, {}, {}, [](unsigned char c) { return std::tolower(c); });
  });
  PATINA_CHECK(row != all_dtypes().end(), "type {}", name);
  return row->dtype;
}

void add_overwrite_option(CommandLine& line, bool& overwrite) {
  line.add_flag("--overwrite", overwrite, "Replace what --out names where it is there already.");
}

void check_keeps_adapter(const std::filesystem::path& out, const std::filesystem::path& adapter) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::equivalent(out, adapter, ignored) ||
      (fs::exists(out, ignored) && fs::equivalent(out.parent_path(), adapter, ignored)) ||
      (fs::is_directory(out, ignored) && fs::equivalent(out, adapter.parent_path(), ignored)))
    fail(Error::Kind::kUsage, "--out {}: the adapter that is read lies there; choose another name", out.string());
}

void check_output_file(const std::filesystem::path& out, const std::filesystem::path& model, bool overwrite) {
  std::error_code ignored;
  if (std::filesystem::equivalent(out, model, ignored))
    fail(Error::Kind::kUsage, "--out {}: is the model itself, which is never changed; choose another name",
         out.string());
  if (!overwrite && std::filesystem::exists(out, ignored))
    fail(Error::Kind::kUsage, "--out {}: is there already; choose another name, or give --overwrite to replace it",
         out.string());
}

std::string samples_text(const Dataset& data) {
  int64_t skipped = 0;
  std::string reasons;
  for (const auto& [reason, count] : data.skipped) {
    skipped += count;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", grouped(count), reason);
  }
  return fmt::format("{} read, {} used, {} truncated, {} skipped{}", grouped(data.read),
                     grouped(static_cast<int64_t>(data.sequences.size())), grouped(data.truncated), grouped(skipped),
                     reasons.empty() ? "" : " (" + reasons + ")");
}

std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(number), noun, number == 1 ? "" : "s");
}

std::string grouped(int64_t number) {
  std::string text = fmt::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string bytes_text(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1000000000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string duration_text(double seconds) {
  const int64_t whole = std::llround(seconds), hours = whole / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace patina
