#include "cli/train_summary.h"

#include <fmt/ranges.h>

#include "cli/common.h"
#include "cli/console.h"

namespace patina {

namespace {

// What the figures of a finished run suggest, each a line.
std::vector<std::string> suggestions(const TrainFlags& flags, const TrainResult& result, const TrainState& state,
                                     double first_loss) {
  constexpr double kHardly = 0.98, kRose = 1.05;  // of the first loss, of the best
  const std::string more = flags.options.steps > 0 ? "--steps" : "--epochs";
  std::vector<std::string> lines;
  if (result.reason == TrainResult::Reason::kInterrupted) lines.push_back("--resume goes on: the same command with it");
  if (state.bad_steps > 0)
    lines.push_back(fmt::format("the last {} not applied, for the loss was not finite: a lower --lr (it was {:g})",
                                state.bad_steps == 1 ? "step was" : fmt::format("{} steps were", state.bad_steps),
                                flags.options.learning_rate));
  else if (result.epochs > 1 && result.final_loss > kHardly * first_loss)
    lines.push_back(fmt::format("the loss hardly fell: another --lr (it was {:g})", flags.options.learning_rate));
  else if (result.final_loss > kRose * result.best_loss)
    lines.push_back(fmt::format("the loss rose at the end: a lower --lr (it was {:g})", flags.options.learning_rate));
  if (flags.run.validation.empty())
    lines.push_back("--val 0.1 tells whether it learns more than the samples by heart");
  else if (state.stale_validations > 0)
    lines.push_back(fmt::format("validation was better before the end: less {}, --dropout 0.05, or more data", more));
  else if (result.reason == TrainResult::Reason::kCompleted)
    lines.push_back(fmt::format("validation was best at the end: more {} may go further", more));
  return lines;
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void print_summary(const TrainRun& run, const TrainResult& result, const TrainState& state, double first_loss,
                   std::span<const OutputDirectory::File> written, const std::string& usage) {
  const TrainFlags& flags = run.flags;
  say("\n{} after {} in {}: {}\n", reason_name(result.reason), counted(result.steps, "step"),
      duration_text(result.ms / 1e3), adapter_words(run));
  say("The last epoch's mean loss is {:.4f}, the best one's {:.4f}.\n", result.final_loss, result.best_loss);
  if (state.best_step > 0)
    say("Validation was best after step {}: loss {:.4f}.{}\n", grouped(state.best_step), state.best_validation,
        flags.run.export_best             ? " That is the adapter."
        : state.best_step == result.steps ? ""
                                          : " --resume --export-best writes the adapter as it was then.");
  std::vector<std::string> formats;
  for (const OutputDirectory::File& file : written) formats.push_back(file.format);
  say("The adapter lies in {} in these formats: {}; report.html beside it shows the whole run.\n",
      shell_quoted(flags.out), fmt::join(formats, ", "));
  say("Use it:\n{}Try next:\n", usage);
  for (const std::string& line : suggestions(flags, result, state, first_loss)) say("  {}\n", line);
}

}  // namespace patina
