// What a training run says at its end, in words.
#pragma once

#include <span>

#include "cli/train_events.h"
#include "cli/train_output.h"

namespace patina {

// Where things lie, how to use them (`usage`: lines), and what may come next.
void print_summary(const TrainFlags& flags, const TrainResult& result, const TrainState& state,
                   std::span<const OutputDirectory::File> written, const std::string& usage);

std::string shell_quoted(const std::string& text);  // for a shell to read back

}  // namespace patina
