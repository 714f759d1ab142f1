#include "cli/train_summary.h"

#include <fmt/ranges.h>

#include "cli/common.h"
#include "cli/console.h"

namespace patina {

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void print_summary(const TrainFlags& flags, const TrainResult& result, const TrainState& state,
                   std::span<const OutputDirectory::File> written, const std::string& usage) {
  say("\n{} after {} in {}: mean loss of the last epoch {:.4f}\n", reason_name(result.reason),
      counted(result.steps, "step"), duration_text(result.ms / 1e3), result.final_loss);
  if (state.best_step > 0)
    say("Validation was best after step {}: loss {:.4f}.{}\n", grouped(state.best_step), state.best_validation,
        flags.run.export_best             ? " That is the adapter."
        : state.best_step == result.steps ? ""
                                          : " --resume --export-best writes the adapter as it was then.");
  std::vector<std::string> formats;
  for (const OutputDirectory::File& file : written) formats.push_back(file.format);
  say("The adapter lies in {} in these formats: {}; report.html beside it shows the whole run.\n",
      shell_quoted(flags.out), fmt::join(formats, ", "));
  say("Use it:\n{}", usage);
  if (result.reason == TrainResult::Reason::kInterrupted) say("Go on: the same command with --resume\n");
}

}  // namespace patina
