// How a training run is kept, ended and shown: the flags beside those that say what is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "train/trainer.h"

namespace patina {

struct RunFlags {
  std::string save_every = "5m", optimizer = "adamw", validation;
  int64_t keep = 2, milestone_keep = 6;
  double milestone_step = 0.0;  // nats; 0: no milestones
  bool resume = false, export_best = false;
  std::vector<const CLI::Option*> of_muon = {};  // which AdamW does not have
};

void add_run_options(CommandLine& line, RunFlags& flags, TrainOptions& options);

// When checkpoints are written; neither: only at the end of a run.
struct SaveRule {
  int64_t steps = 0;     // > 0: after every so many
  double seconds = 0.0;  // > 0: after the step that ends so long after the last one
};
// --save-every: "50" (steps), "5m" (minutes) or "end". Error(kUsage) otherwise.
SaveRule parse_save_rule(const std::string& text);

// --val as a fraction; nothing where it is a file. Error(kUsage) where it is a number that is no fraction.
std::optional<double> validation_fraction(const std::string& text);

// What an optimizer cannot do for these parameters, a line each.
std::vector<std::string> optimizer_warnings(const ParameterStore& store, const OptimizerOptions& options);

// Sets what the flags say by name. Error(kUsage).
void resolve_run_flags(const RunFlags& flags, TrainOptions& options);

}  // namespace patina
