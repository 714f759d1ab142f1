// patina eval: the mean loss of a model on a data set.
#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "cli/common.h"
#include "cli/console.h"
#include "data/dataset.h"
#include "train/loss_runner.h"

namespace patina {

namespace {

constexpr int64_t kMicroTokens = 512;  // products are at full speed from here on

}  // namespace

int run_eval(const Command& command, int argc, char** argv) {
  std::string model_path, adapter_path, data_path, loss_on = "assistant", chat_template;
  int64_t context = kDefaultContextTokens;
  int threads = 0;
  bool json = false;
  CommandLine line(command);
  line.option("--model", model_path, "FILE", "GGUF model.")->required();
  line.option("--adapter", adapter_path, "PATH", kAdapterHelp);
  line.option("--data", data_path, "FILE", "Data set: .txt, or .jsonl with messages, prompt and completion, or text.")
      ->required();
  const CLI::Option* context_option =
      line.option("--context", context, "TOKENS",
                  "Longest sequence; the default is less where the model's own limit is.")
          ->check(quiet(CLI::Range(int64_t{2}, int64_t{1} << 30)));
  line.option("--loss-on", loss_on, "WHAT", kLossOnHelp);
  add_chat_template_option(line, chat_template);
  add_threads_option(line, threads);
  line.add_flag("--json", json, "Print one JSON object.");
  if (!line.read(argc, argv)) return 0;

  DatasetOptions options;
  options.loss_on = parse_loss_on(loss_on);
  options.chat_template = chat_template;
  const LanguageModel model = load_language_model(model_path);
  options.context_tokens = resolve_context(model.weights, context, context_option->count() > 0);
  const std::unique_ptr<Adapter> adapter = load_adapter(model.weights, adapter_path);
  const Dataset data = load_dataset(data_path, *model.tokenizer, options);

  ThreadPool pool(threads);
  const Evaluation result = evaluate(model.weights, adapter.get(), data.sequences, kMicroTokens, cpu_backend(), pool);
  const double perplexity = std::exp(result.mean_loss());
  if (json) {
    const nlohmann::ordered_json object = {{"loss", result.mean_loss()},
                                           {"perplexity", perplexity},
                                           {"supervisedTokens", result.supervised_tokens},
                                           {"tokens", result.tokens},
                                           {"samples", data.read},
                                           {"used", static_cast<int64_t>(data.sequences.size())},
                                           {"truncated", data.truncated},
                                           {"skipped", data.skipped}};
    write_out(object.dump() + "\n");
    return 0;
  }
  write_out(fmt::format(
      "loss        {:.4f} nats a token\nperplexity  {:.3f}\nsupervised  {} of {} tokens\nsamples     {}\n",
      result.mean_loss(), perplexity, grouped(result.supervised_tokens), grouped(result.tokens), samples_text(data)));
  return 0;
}

}  // namespace patina
