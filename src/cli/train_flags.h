// What the command line of every command that trains says; the commands add what they train on.
#pragma once

#include <set>
#include <string>

#include "adapter/files.h"
#include "cli/adapter_flags.h"
#include "cli/memory_flags.h"
#include "cli/run_flags.h"

namespace patina {

struct TrainFlags {
  std::string command;  // "train-lm"
  std::string model, out, sites = "all", schedule = "cosine", bwd{name(Formulation::kFused)}, init_adapter, trigger,
                          trigger_position = "prepend";
  int64_t layers = 0;
  AdapterFlags adapter_flags;
  AdapterOptions adapter;  // what they come to
  TrainOptions options;
  MemoryFlags memory;
  RunFlags run;
  int threads = 0;
  bool jsonl = false, overwrite = false, profile = false;
  bool bwd_inherited = false;  // from the environment
  bool plan_only = false;      // patina plan
  const CLI::Option *sites_option = nullptr, *layers_option = nullptr, *bwd_option = nullptr;
};

// The options that say what is adapted; then all others but those that say what is trained on, and from where.
void add_target_options(CommandLine& line, TrainFlags& flags, const std::string& sites_help);
void add_train_options(CommandLine& line, TrainFlags& flags);

// Sets what the flags say by name, before anything slow. Error(kUsage).
void resolve_train_flags(TrainFlags& flags);

// What a run that goes on from another adapter takes from it; flags that say otherwise are refused. `asked`: the sites
// of --sites; `layers`: of the model.
void take_over(const AdapterFile& initial, int layers, const std::set<std::string>& asked, TrainFlags& flags);

}  // namespace patina
