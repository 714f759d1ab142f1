// What any training run says about itself, once: the events that --jsonl prints, the text on stderr and train_log.json
// come from here. What is trained on adds its own (cli/lm_run.h).
#pragma once

#include <string>

#include "cli/events.h"
#include "cli/train_flags.h"
#include "train/estimate.h"

namespace patina {

// A run that is about to start.
struct TrainRun {
  const TrainFlags& flags;
  const std::vector<Site>& sites;  // adapted
  int layers;                      // of the model
  int64_t parameters;              // trainable
  TrainPlan plan;
  FormulationCounts formulations;  // frozen products whose gradient is computed
  int64_t budget_bytes;            // that the run may take
  int64_t anonymous_bytes;         // that the process takes with all of the run set up and no activation in memory yet
  int64_t data_bytes;              // of it
  int64_t sample_bytes;            // that it takes beside while samples are taken; 0: none are
  std::string model_fingerprint, data_fingerprint;
  std::string validation_fingerprint;  // empty where a part of the data, or nothing, is validated on
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
Json memory_event(const TrainRun& run);
Json plan_event(const TrainRun& run, const TimeEstimate& time);
Json step_event(const StepReport& step);
Json epoch_event(const EpochReport& epoch);
Json eval_event(const EvalReport& eval);
std::string_view reason_name(TrainResult::Reason reason);  // "completed", "target", ...
std::string_view kind_name(Error::Kind kind);              // of a fatal event: "usage", "model", ...

std::string adapter_words(const TrainRun& run);  // "lora, rank 16, alpha 32, sites q, v, 30 layers: ..."

// The same for people, a few lines.
std::string describe_adapter(const TrainRun& run);
std::string describe_costs(const TrainRun& run);   // memory, the way back, the machine
std::string describe_memory(const TrainRun& run);  // a line a kind, and the sum

}  // namespace patina
