// patina merge: a model file with an adapter in its weights.
#include "adapter/merge.h"

#include "cli/common.h"
#include "cli/console.h"

namespace patina {

namespace {

// Below it, a person should hear that much of the adapter is lost.
constexpr double kEnough = 0.9;
constexpr double kMostWeight = 1000.0;  // a larger one can only be a mistake

}  // namespace

int run_merge(const Command& command, int argc, char** argv) {
  std::string model_path, adapter_path, out, type;
  double weight = 1.0;
  bool overwrite = false;
  int threads = 0;
  CommandLine line(command);
  line.option("--model", model_path, "FILE", "GGUF model; it is never changed.")->required();
  line.option("--adapter", adapter_path, "PATH", kAdapterHelp)->required();
  line.option("--weight", weight, "NUMBER", "Strength: the change of every weight is multiplied by it.")
      ->check(between(-kMostWeight, kMostWeight));
  line.option("--out", out, "FILE", "GGUF file to write.")->required();
  line.add_option("--type", type,
                  "Type of the adapted tensors: f32, f16, bf16, q8_0, q4_0 or q4_1; all others stay as they are. The "
                  "default is a tensor's own type where that is f32, f16, bf16 or q8_0, and f16 elsewhere: types of 6 "
                  "bits and less swallow much of an adapter.")
      ->type_name("TYPE")
      ->check(stored_type());
  add_threads_option(line, threads);
  add_overwrite_option(line, overwrite);
  if (!line.read(argc, argv)) return 0;

  const DecoderModel model = DecoderModel::load(model_path);
  const AdapterFile adapter = read_fitting_adapter(model, adapter_path);
  check_output_file(out, model_path, overwrite);
  check_keeps_adapter(out, adapter_path);
  MergeOptions options;
  options.weight = weight;
  if (!type.empty()) options.dtype = parse_stored_type(type);
  ThreadPool pool(threads);
  const std::vector<MergedTensor> merged =
      merge_adapter(model.file(), adapter.sites, adapter_base(model), options, out, pool);

  std::string text = fmt::format("{:<28} {:<14} {:>8} {:>8}\n", "tensor", "type", "cosine", "energy");
  std::vector<std::string> poor;
  for (const MergedTensor& tensor : merged) {
    const double cosine = tensor.retention.cosine(), energy = tensor.retention.energy();
    text += fmt::format("{:<28} {:<14} {:>8.4f} {:>8.4f}\n", tensor.name,
                        fmt::format("{} -> {}", name(tensor.before), name(tensor.after)), cosine, energy);
    if (!(cosine >= kEnough && energy >= kEnough) && tensor.retention.wanted > 0.0) poor.push_back(tensor.name);
  }
  write_out(text + fmt::format("{}: {}\n", out, counted(static_cast<int64_t>(merged.size()), "merged tensor")));
  if (!poor.empty())
    say("patina: warning: {} of {} hold less than {} of the adapter's change (cosine or energy), among them {}; choose "
        "a finer --type such as f16, or use the adapter beside the model\n",
        poor.size(), merged.size(), kEnough, poor.front());
  return 0;
}

}  // namespace patina
