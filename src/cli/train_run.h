// The control of a run, the same for all that can be trained: its directory, what it goes on from, the loop with its
// checkpoints, logs and reports, the export and how it ends (docs/runs.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cli/events.h"
#include "cli/run_observer.h"
#include "cli/train_events.h"
#include "cli/train_output.h"
#include "train/checkpoint.h"

namespace patina {

// The directory of a run, and what it goes on from.
struct RunPlace {
  std::unique_ptr<OutputDirectory> out;  // null where nothing is written: a plan
  std::optional<Checkpoint> checkpoint;  // none: the run begins
};
// Makes and locks --out, and finds the checkpoint that --resume goes on from. Before anything slow; from here on a
// signal asks the run to end. Error as OutputDirectory and find_checkpoint().
RunPlace open_run(const TrainFlags& flags, bool writes);

// Whether a signal came before the first step: then that is said, and ended_status() is the exit status.
bool ended_early(EventWriter& events);
int ended_status();

// A run that is set up, with what it needs of what is trained.
struct Training {
  const TrainRun& run;
  Adapter& adapter;
  std::unique_ptr<Trainer> trainer;
  ThreadPool& pool;
  Json opening;             // by event, what is told before the first step: start, model, data, memory
  std::string description;  // the same for people
  Json settings;            // what decides the result (cli/run_settings.h)
  const std::optional<AdapterFile>& initial;  // what the adapter was made from
  AdapterBase base;
  SampleRule samples;
  std::function<TimeEstimate(const Trainer&)> estimate;                      // for a plan
  std::function<std::string(const TimeEstimate&)> remark;                    // for a plan: what follows from it
  std::function<std::string(std::span<const OutputDirectory::File>)> usage;  // lines: how to use what was written
};

// Trains to the end and exports, or tells what it would take where that was asked for. Returns the exit status.
int run_training(Training training, RunPlace place, EventWriter& events);

// What a command that trains does around all of it: where it fails, the last event says why.
int run_train_command(CommandLine& line, const TrainFlags& flags, int argc, char** argv,
                      const std::function<int(EventWriter&)>& train);
// The part of it for a line that is read in another way: runs, and where that throws, writes the last event if `jsonl`
// or the line asks for events.
int tell_failure(int argc, char** argv, const bool* jsonl, const std::function<int()>& run);

}  // namespace patina
