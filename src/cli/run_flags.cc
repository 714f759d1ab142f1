#include "cli/run_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"

namespace patina {

namespace {

const std::map<std::string, OptimizerKind> kOptimizers = {{"adamw", OptimizerKind::kAdamW},
                                                          {"muon", OptimizerKind::kMuon}};

}  // namespace

void add_run_options(CommandLine& line, RunFlags& flags, TrainOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 30;
  line.option(
          "--optimizer", flags.optimizer, "NAME",
          "adamw, or muon: near-orthogonal steps for matrices whose short side (the rank) is at least 16, AdamW for "
          "the rest.")
      ->check(quiet(CLI::IsMember(kOptimizers)));
  flags.of_muon = {line.option("--muon-scale", options.optimizer.muon_scale, "NUMBER",
                               "Factor of Muon's steps; with 20 a learning rate for AdamW does for Muon too.")
                       ->check(above_zero())};
  line.option("--lora-plus-ratio", options.optimizer.lora_plus_ratio, "NUMBER",
              "LoRA+: the learning rate of every B over that of every A.")
      ->check(above_zero());
  line.option("--val", flags.validation, "FILE|FRACTION",
              "Validate on this data set, or on a fraction of --data (0.1) that is then not trained on.");
  line.option("--eval-every", options.eval_every, "STEPS", "Steps between two validations; 0 is after each epoch.")
      ->check(quiet(CLI::Range(int64_t{0}, kMost)))
      ->needs("--val");
  line.option("--patience", options.patience, "N", "End after N validations in a row without a new best; 0 does not.")
      ->check(quiet(CLI::Range(int64_t{0}, kMost)))
      ->needs("--val");
  line.add_flag("--export-best", flags.export_best,
                "Export the adapter as it was at its best validation, not as the last step left it.")
      ->needs("--val");
  line.option("--target-loss", options.target_loss, "NUMBER",
              "End where the mean loss of the last five epochs is at most this; 0 does not.")
      ->check(not_negative());
  line.option("--save-every", flags.save_every, "WHEN",
              "When a checkpoint is written to --out/checkpoints: 50 (steps), 5m (minutes, and at the end of an epoch "
              "where the last is a minute old), or end. One is always written at the end.");
  line.option("--keep", flags.keep, "N", "Checkpoints that are kept: the newest N, and the best by validation.")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.option(
          "--milestone-step", flags.milestone_step, "NUMBER",
          "Export the adapter to --out/milestones after each epoch whose mean loss lies this much below that of the "
          "last milestone, or of the first epoch; 0 does not.")
      ->check(not_negative());
  line.option("--milestone-keep", flags.milestone_keep, "N", "Milestones that are kept: the newest N.")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.add_flag("--resume", flags.resume,
                "Go on from the newest checkpoint in --out, to the same bits as without a stop. Takes the flags of the "
                "first start.");
  line.option("--max-bad-steps", options.max_bad_steps, "N",
              "Steps in a row whose loss or gradient is not finite, and which are not applied, that end the run.")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)));
}

SaveRule parse_save_rule(const std::string& text) {
  if (text == "end") return {};
  SaveRule rule;
  const char* const end = text.data() + text.size();
  if (text.ends_with('m')) {
    double minutes = 0.0;
    const auto [rest, error] = std::from_chars(text.data(), end - 1, minutes);
    rule.seconds = 60.0 * minutes;
    if (error == std::errc() && rest == end - 1 && std::isfinite(rule.seconds) && minutes > 0.0) return rule;
  } else {
    const auto [rest, error] = std::from_chars(text.data(), end, rule.steps);
    if (error == std::errc() && rest == end && rule.steps > 0) return rule;
  }
  fail(Error::Kind::kUsage, "--save-every {}: expected steps (50), minutes (5m) or end", text);
}

std::optional<double> validation_fraction(const std::string& text) {
  double fraction = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, fraction);
  if (error != std::errc() || rest != end) return std::nullopt;
  if (!(fraction > 0.0 && fraction < 1.0))
    fail(Error::Kind::kUsage, "--val {}: expected a file, or a fraction above 0 and below 1", text);
  return fraction;
}

std::vector<std::string> optimizer_warnings(const ParameterStore& store, const OptimizerOptions& options) {
  std::vector<std::string> warnings;
  if (options.kind == OptimizerKind::kMuon && split_parameters(store, options).matrices.empty())
    warnings.push_back(
        "--optimizer muon: no parameter has a short side (--rank) of at least 16, so every step is AdamW's");
  const auto is_b = [](const ParameterStore::Slice& slice) { return is_lora_b(slice.name); };
  if (options.lora_plus_ratio != 1.0 && std::ranges::none_of(store.slices(), is_b))
    warnings.push_back("--lora-plus-ratio: this kind of adapter has no B, so it changes nothing");
  return warnings;
}

void resolve_run_flags(const RunFlags& flags, TrainOptions& options) {
  parse_save_rule(flags.save_every);
  validation_fraction(flags.validation);
  options.optimizer.kind = kOptimizers.at(flags.optimizer);
  for (const CLI::Option* option : flags.of_muon)
    if (option->count() > 0 && options.optimizer.kind != OptimizerKind::kMuon)
      fail(Error::Kind::kUsage, "{} is for --optimizer muon, not for {}; leave it out", option->get_name(),
           flags.optimizer);
}

}  // namespace patina
