// A training run on stderr: a bar where that is a terminal, else a plain line every few seconds.
#pragma once

#include <chrono>
#include <string>

#include "train/trainer.h"

namespace patina {

// Of training that was found to make a good adapter of a music model.
inline constexpr int64_t kGoodAudioSeconds = 85000;

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(const StepReport& step);
  void on_epoch(const EpochReport& epoch);
  // A line of its own, above the bar.
  void print_line(const std::string& text);

 private:
  void draw_bar(const StepReport& step, const std::string& figures);
  void clear_bar();

  const bool terminal_, colour_;
  bool bar_shown_ = false;
  int64_t tokens_ = 0, steps_ = 0;  // of this process
  double audio_seconds_ = 0.0;      // the same, where it trains on audio
  double mean_loss_ = 0.0;          // of the last steps, about
  std::chrono::steady_clock::time_point start_, last_line_;
};

}  // namespace patina
