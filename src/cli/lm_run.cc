#include "cli/lm_run.h"

#include <fmt/ranges.h>

#include "cli/run_settings.h"
#include "cli/train_summary.h"

namespace patina {

namespace {

constexpr const char* kMicroTokens = "--micro-tokens";

std::string data_paths(const LmFlags& flags) { return fmt::format("{}", fmt::join(flags.data, ", ")); }

std::map<std::string, int64_t> type_counts(const GgufFile& file) {
  std::map<std::string, int64_t> types;
  for (const GgufTensor& tensor : file.tensors()) ++types[std::string(name(tensor.dtype))];
  return types;
}

Json lm_start_event(const LmRun& lm) {
  Json event = start_event(lm.run);
  event.update({{"batchTokens", lm.flags.batch_tokens},
                {"microTokens", lm.micro_tokens},
                {"context", lm.flags.context},
                {"lossOn", lm.flags.loss_on},
                {"chatTemplate", lm.flags.chat_template}});
  return event;
}

Json model_event(const LmRun& lm) {
  const DecoderConfig& config = lm.model.weights.config();
  return {{"path", lm.flags.model},
          {"architecture", config.architecture},
          {"layers", config.layers},
          {"width", config.width},
          {"vocab", config.vocabulary},
          {"types", type_counts(lm.model.weights.file())},
          {"bytes", lm.model.weights.file().file_bytes()},
          {"ms", lm.model.load_ms}};
}

Json data_event(const LmRun& lm) {
  const TrainPlan& plan = lm.run.plan;
  return {{"path", data_paths(lm.flags)},
          {"fingerprint", lm.data.fingerprint},
          {"samples", lm.data.read},
          {"used", lm.data.sequences.size()},
          {"truncated", lm.data.truncated},
          {"skipped", lm.data.skipped},
          {"validation", lm.validation.sequences.size()},
          {"tokens", lm.data.tokens},
          {"supervisedTokens", lm.data.supervised_tokens},
          {"stepsPerEpoch", plan.steps_per_epoch},
          {"totalSteps", plan.total_steps},
          {"warmupSteps", plan.warmup_steps}};
}

}  // namespace

Json opening_events(const LmRun& lm) {
  return {{"start", lm_start_event(lm)},
          {"model", model_event(lm)},
          {"data", data_event(lm)},
          {"memory", memory_event(lm.run)}};
}

std::string describe(const LmRun& lm) {
  const DecoderConfig& config = lm.model.weights.config();
  const TrainPlan& plan = lm.run.plan;
  const int64_t asked = lm.flags.micro_tokens;
  std::string types;
  for (const auto& [type, count] : type_counts(lm.model.weights.file())) types += fmt::format(", {} x {}", type, count);
  std::string text =
      fmt::format("model     {}: {}, {}, width {}, vocabulary {}{}\n", lm.flags.model, config.architecture,
                  counted(config.layers, "layer"), config.width, grouped(config.vocabulary), types);
  text += describe_adapter(lm.run);
  text += fmt::format("data      {}: samples {}\n          {}, {} supervised\n", data_paths(lm.flags),
                      samples_text(lm.data), counted(lm.data.tokens, "token"), grouped(lm.data.supervised_tokens));
  if (!lm.validation.sequences.empty())
    text +=
        fmt::format("validate  on {} of {}\n", counted(static_cast<int64_t>(lm.validation.sequences.size()), "sample"),
                    lm.validation.fingerprint.empty() ? "the data, held out" : lm.flags.run.validation);
  text += fmt::format("steps     {} in {} of about {}, {} of warm-up; up to {} a step, {} in memory at once{}\n",
                      grouped(plan.total_steps), counted(plan.epochs, "epoch"), counted(plan.steps_per_epoch, "step"),
                      grouped(plan.warmup_steps), counted(lm.flags.batch_tokens, "token"), grouped(lm.micro_tokens),
                      asked > 0 && asked < lm.micro_tokens
                          ? fmt::format(" ({} {} was raised to the longest sequence)", kMicroTokens, asked)
                          : "");
  return text + describe_costs(lm.run);
}

Json lm_settings(const LmRun& lm) {
  Json settings = run_settings(lm.run);
  settings.update({{"--context", lm.flags.context},
                   {"--loss-on", lm.flags.loss_on},
                   {"--chat-template", lm.flags.chat_template},
                   {"--batch-tokens", lm.flags.batch_tokens},
                   {kMicroTokens, lm.micro_tokens}});
  return settings;
}

int64_t saved_micro_tokens(const Json& settings) { return settings.value(kMicroTokens, int64_t{0}); }

std::string usage_text(const LmRun& lm, std::span<const OutputDirectory::File> written) {
  const std::string model = shell_quoted(lm.flags.model);
  std::string chat_flags = lm.data.chat ? "" : " --raw";  // a prompt for an adapter of plain text takes no chat format
  if (lm.data.chat && !lm.flags.chat_template.empty()) chat_flags = " --chat-template " + lm.flags.chat_template;
  std::string text = fmt::format("  patina generate --model {} --adapter {}{} --prompt 'your {}'\n", model,
                                 shell_quoted(lm.flags.out), chat_flags, lm.data.chat ? "question" : "text");
  for (const OutputDirectory::File& file : written)
    if (file.format == "gguf")
      text += fmt::format("  llama-cli -m {} --lora {}\n", model, shell_quoted(file.path.string()));
  return text;
}

}  // namespace patina
