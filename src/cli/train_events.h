// What a training run says about itself, once: the events that --jsonl prints, the text on stderr and train_log.json
// come from here.
#pragma once

#include <string>

#include "cli/adapter_flags.h"
#include "cli/common.h"
#include "cli/events.h"
#include "cli/memory_flags.h"
#include "cli/run_flags.h"
#include "train/estimate.h"

namespace patina {

// The command line of train-lm.
struct TrainFlags {
  std::vector<std::string> data;
  std::string model, out, sites = "all", micro_tokens = "auto", schedule = "cosine", loss_on = "assistant",
                          chat_template, bwd{name(Formulation::kFused)}, init_adapter, trigger,
                          trigger_position = "prepend";
  int64_t layers = 0, context = kDefaultContextTokens, show_mask = 0;
  AdapterFlags adapter_flags;
  AdapterOptions adapter;  // what they come to
  TrainOptions options;
  MemoryFlags memory;
  RunFlags run;
  int threads = 0;
  bool jsonl = false, overwrite = false, profile = false;
  bool bwd_inherited = false;  // from the environment
  bool plan_only = false;      // patina plan
};

// What a run validates on.
struct Validation {
  std::vector<Sequence> sequences;  // none: nothing
  std::string fingerprint;          // of the file; empty where a part of the data set was held out
};

// A run that is about to start.
struct TrainRun {
  const TrainFlags& flags;
  const LanguageModel& model;
  const Dataset& data;
  const Validation& validation;
  const std::vector<Site>& sites;  // adapted
  int64_t parameters;              // trainable
  const TrainPlan& plan;
  int64_t budget_bytes;     // that the run may take
  int64_t anonymous_bytes;  // that the process takes with all of the run set up and no activation in memory yet
  std::string model_fingerprint;
};

// What memory a run takes, by kind (docs/memory.md).
struct MemoryKind {
  const char* name;
  int64_t bytes;
  const char* what;
};
std::vector<MemoryKind> memory_kinds(const TrainRun& run);
int64_t planned_bytes(const TrainRun& run);  // their sum

Json start_event(const TrainRun& run);
Json model_event(const TrainRun& run);
Json data_event(const TrainRun& run);
Json memory_event(const TrainRun& run);
Json plan_event(const TrainRun& run, const TimeEstimate& time);
Json step_event(const StepReport& step);
Json epoch_event(const EpochReport& epoch);
Json eval_event(const EvalReport& eval);
std::string_view reason_name(TrainResult::Reason reason);  // "completed", "target", ...
std::string_view kind_name(Error::Kind kind);              // of a fatal event: "usage", "model", ...

// The same for people, a few lines.
std::string describe(const TrainRun& run);
std::string describe_memory(const TrainRun& run);  // a line a kind, and the sum

}  // namespace patina
