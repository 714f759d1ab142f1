// What the commands share: a language model with its tokenizer, adapters, and numbers for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "adapter/files.h"
#include "cli/command.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "model/decoder_model.h"
#include "model/dit_model.h"

namespace patina {

struct LanguageModel {
  DecoderModel weights;
  std::unique_ptr<Tokenizer> tokenizer;
  double load_ms;
};
// Error(kModel) also where the tokenizer knows more tokens than the model.
LanguageModel load_language_model(const std::filesystem::path& path);

// Whether a path is of a diffusion transformer: safetensors, or a GGUF file that says so.
bool holds_dit(const std::filesystem::path& path);

AdapterBase adapter_base(const DecoderModel& model);
AdapterBase adapter_base(const DitModel& model);
// An adapter file whose sites all fit the model. Warns on stderr where it tells that it was trained on another model.
AdapterFile read_fitting_adapter(const DecoderModel& model, const std::filesystem::path& path);
AdapterFile read_fitting_adapter(const DitModel& model, const std::filesystem::path& path);
// The same, ready to run; null for an empty path.
std::unique_ptr<Adapter> load_adapter(const DecoderModel& model, const std::filesystem::path& path);

// Keys of an adapter's metadata: the fingerprint of the model that it was trained on, and the word that calls it up.
inline constexpr const char* kBaseFingerprint = "patina.base_fingerprint";
inline constexpr const char* kTrigger = "patina.trigger";
inline constexpr const char* kTriggerPosition = "patina.trigger_position";

inline constexpr const char* kAdapterHelp =
    "Adapter: a PEFT or MLX directory, a GGUF LoRA, or a LyCORIS or kohya .safetensors file.";

// --context as given, or its default as far as the model goes. Error(kUsage) where a given one is more than the model
// was made for.
int64_t resolve_context(const DecoderModel& model, int64_t context_tokens, bool given);

// Error(kUsage) where writing `out`, a file or a directory, would replace the adapter that is read.
void check_keeps_adapter(const std::filesystem::path& out, const std::filesystem::path& adapter);

// --threads; the default, all physical cores, is what `threads` holds.
void add_threads_option(CommandLine& line, int& threads);
void add_chat_template_option(CommandLine& line, std::string& name);
// A check of an option: a type that tensors can be stored in, of `names`, in lower case; and what it stands for.
CLI::Validator stored_type(std::vector<std::string> names = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"});
DType parse_stored_type(const std::string& name);
void add_overwrite_option(CommandLine& line, bool& overwrite);
// Error(kUsage) where the file to be written is the model itself, or is there and not to be overwritten.
void check_output_file(const std::filesystem::path& out, const std::filesystem::path& model, bool overwrite);
inline constexpr int64_t kDefaultContextTokens = 512;
inline constexpr const char* kLossOnHelp =
    "What the loss is taken on: assistant (answers and completions with their end markers; text files whole), all, "
    "after:MARKER (what follows MARKER in a sample), or from:MARKER (MARKER and what follows it).";

std::string samples_text(const Dataset& data);  // "150 read, 148 used, 3 truncated, 2 skipped (2 nothing supervised)"
std::string counted(int64_t number, std::string_view noun);  // "1 step", "4,000 steps"
std::string grouped(int64_t number);                         // "4,884,480"
std::string bytes_text(int64_t bytes);                       // "98.9 MB"
std::string duration_text(double seconds);                   // "1:02:03", "2:03"

}  // namespace patina
