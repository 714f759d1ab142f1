// What a training run says at its end, in words.
#pragma once

#include <span>

#include "cli/train_events.h"
#include "cli/train_output.h"

namespace patina {

// What was trained, where things lie, how to use them (`usage`: lines), and what may be tried next. `first_loss`: of
// the first epoch.
void print_summary(const TrainRun& run, const TrainResult& result, const TrainState& state, double first_loss,
                   std::span<const OutputDirectory::File> written, const std::string& usage);

std::string shell_quoted(const std::string& text);  // for a shell to read back

}  // namespace patina
