// When a run's checkpoints are written, which are kept, and what becomes of a run whose disk does not take them.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cli/events.h"
#include "cli/run_flags.h"
#include "train/checkpoint.h"

namespace patina {

class RunSaver {
 public:
  // Checkpoints go to `out`/checkpoints, made when the first is written. `session` gives what a checkpoint says for the
  // caller; `warn` gets what went wrong.
  RunSaver(const std::filesystem::path& out, const RunFlags& flags, Json settings, std::function<Json()> session,
           std::function<void(const std::string&)> warn);

  // After a step: writes a checkpoint where one is due. A validation that was the best makes one due.
  void after_step(Trainer& trainer, const ParameterStore& store, bool epoch_ended, EventWriter& events);
  // At the end of a run: writes one where the last is of an earlier step. False where there is none of this step.
  bool save(Trainer& trainer, const ParameterStore& store, EventWriter& events);
  // Takes the parameters back to the best validation, where there was one; says which they are.
  void restore_best(const Trainer& trainer, ParameterStore& store) const;
  // A run goes on from the checkpoint of this step.
  void resumed_at(int64_t step) { saved_step_ = step; }

 private:
  std::filesystem::path path_;
  CheckpointDirectory directory_;
  SaveRule rule_;
  int64_t keep_, saved_step_ = 0;
  Json settings_;
  std::function<Json()> session_;
  std::function<void(const std::string&)> warn_;
  std::chrono::steady_clock::time_point last_;
};

// The newest checkpoint of `out` that can be read; empty where there is none at all. Says which are damaged.
// Error(kModel) where all are.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& out);
// Removes the checkpoints of an earlier run, and what killed runs left half written.
void remove_checkpoints(const std::filesystem::path& out);

}  // namespace patina
