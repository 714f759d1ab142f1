// Times of things that are compared with each other: medians of interleaved rounds.
#pragma once

#include <functional>
#include <vector>

namespace patina {

struct Contender {
  std::function<void()> run;
  // A small piece of the same work. It wakes threads that went to sleep while others ran.
  std::function<void()> warm_up;
  bool yardstick = false;  // on threads other than ours
  bool slow = false;       // may take a multiple of the others' time: as few rounds as about 2 s allow, at least one

  int calls = 0;  // of run() in one sample, so that a sample is long enough for the clock and the scheduler
  std::vector<double> samples_ms = {};  // a call
  double median_ms() const;
};

double median(std::vector<double> values);

// Fills samples_ms: `reps` rounds, in each of which every contender has its turn. Every contender runs once before.
//
// Where the first contender is the yardstick, its speed between the others is compared with its speed alone (OpenBLAS
// just after another thread pool ran at 0.55 to 0.8 of it). Where they differ by more than 3 % all is measured again,
// at most three times in all. Returns whether they agreed in the end.
bool measure_rounds(std::vector<Contender>& contenders, int reps);

}  // namespace patina
