// What a run of train-lm says about itself beside what any run does (cli/train_events.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/train_events.h"
#include "cli/train_output.h"

namespace patina {

// The command line of train-lm.
struct LmFlags : TrainFlags {
  std::vector<std::string> data;
  std::string asked_context = std::to_string(kDefaultContextTokens), asked_micro_tokens{kAuto}, loss_on = "assistant",
              chat_template;
  int64_t context = 0, show_mask = 0;  // context: as it came to
  int64_t batch_tokens = LmTrainOptions{}.batch_tokens;
  std::string sample_prompts;
  int64_t sample_every = 0, sample_tokens = 64;
  double sample_temperature = 0.0;
  int64_t micro_tokens = 0;  // what is asked for, or chosen to fit into memory; 0: auto
};

// What a run validates on.
struct Validation {
  std::vector<Sequence> sequences;  // none: nothing
  std::string fingerprint;          // of the file; empty where a part of the data set was held out
};

struct LmRun {
  const TrainRun& run;
  const LmFlags& flags;
  const LanguageModel& model;
  const Dataset& data;
  const Validation& validation;
  int64_t micro_tokens;  // as resolved
};

// By event: start, model, data, memory.
Json opening_events(const LmRun& lm);
// The same for people, a few lines.
std::string describe(const LmRun& lm);
// What decides the result.
Json lm_settings(const LmRun& lm);
// --micro-tokens as the run began with: what auto means now may depend on today's free memory.
int64_t saved_micro_tokens(const Json& settings);
// Lines of the summary: how to use what was written.
std::string usage_text(const LmRun& lm, std::span<const OutputDirectory::File> written);

}  // namespace patina
