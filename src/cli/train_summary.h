// What a training run says at its end, in words.
#pragma once

#include <span>

#include "cli/train_events.h"
#include "cli/train_output.h"

namespace patina {

// Where things lie, how to use them, and what may come next. `chat`: the data were conversations; a prompt for an
// adapter of plain text takes no chat format.
void print_summary(const TrainFlags& flags, bool chat, const TrainResult& result, const TrainState& state,
                   std::span<const OutputDirectory::File> written);

}  // namespace patina
