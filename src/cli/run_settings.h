// What decides the result of a run: kept in its checkpoints, so that --resume goes on with the same or not at all.
#pragma once

#include "cli/train_events.h"
#include "train/checkpoint.h"

namespace patina {

// Flag -> value, all resolved; files by the fingerprints of what is in them. What is trained on adds its own.
Json run_settings(const TrainRun& run);

// What a checkpoint keeps beside: how long the run's logs are, what was told (RunObserver), by which program and where.
inline constexpr const char *kSessionFiles = "files", *kSessionTold = "told";
Json run_session(Json files, Json told);

// Puts parameters and trainer where the checkpoint stands. Error(kUsage) where the run is another one; warns where the
// program or the instruction set is.
void restore_run(const Checkpoint& checkpoint, const Json& settings, const std::string& out, ParameterStore& store,
                 Trainer& trainer);

}  // namespace patina
