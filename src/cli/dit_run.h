// What a run of train-dit says about itself beside what any run does (cli/train_events.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/train_events.h"
#include "cli/train_output.h"
#include "data/songs.h"
#include "model/dit_model.h"
#include "train/flow_objective.h"

namespace patina {

// The command line of train-dit.
struct DitFlags : TrainFlags {
  std::string data, asked_crop{kAuto}, weighting = "flow_snr", timesteps = "logistic", order = "shuffle";
  FlowOptions flow;
  int64_t batch = 1, grad_accum = 4, limit = 0;
  int64_t crop_least = 375, crop_most = 1250;  // of an automatic crop, in frames
  double genre_percent = 30.0;
  bool prepare_stats = false;
};

struct DitRun {
  const TrainRun& run;
  const DitFlags& flags;
  const DitModel& model;
  double load_ms;
  const SongSet& songs;
  std::span<const Song> validation;
  bool held_out;         // the validation songs are a part of the data
  bool stats_from_file;  // the channels' weights
  std::span<const float> channel_weights;
  double epoch_audio_seconds;
};

// By event: start, model, data, memory.
Json opening_events(const DitRun& dit);
// The same for people, a few lines.
std::string describe(const DitRun& dit);
// What decides the result.
Json dit_settings(const DitRun& dit);
// --crop in frames as the run began with, -1 where the settings have none: what auto means now may depend on today's
// free memory.
int64_t saved_crop(const Json& settings);
// Lines of the summary: how to use what was written.
std::string usage_text(const DitRun& dit, std::span<const OutputDirectory::File> written);
// What a plan says of audio.
std::string audio_text(const DitRun& dit, const TimeEstimate& time);

}  // namespace patina
