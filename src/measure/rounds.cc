#include "measure/rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"

namespace patina {

namespace {

constexpr double kSampleMs = 10, kSlowBudgetMs = 2000, kAgreement = 0.03;
constexpr int kTries = 3;
// OpenBLAS's threads go on spinning for 2^26 cycles after a call, 27 ms here, before they sleep.
constexpr std::chrono::milliseconds kSettle{60};

double time_ms(const Contender& contender, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) contender.run();
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / calls;
}

// Lets a change of threads pass before a measurement.
class Turns {
 public:
  void begin(const Contender& contender) {
    if (yardstick_ && !contender.yardstick) std::this_thread::sleep_for(kSettle);
    if (yardstick_ != contender.yardstick) contender.warm_up();
    yardstick_ = contender.yardstick;
  }

 private:
  bool yardstick_ = false;
};

// Calls a sample and rounds from the time of one call; a slow contender may be done with that one.
void prepare(Contender& contender, Turns& turns) {
  turns.begin(contender);
  const double first_ms = time_ms(contender, 1);
  contender.calls = static_cast<int>(std::clamp(std::ceil(kSampleMs / first_ms), 1.0, 1000.0));
  if (contender.slow) contender.samples_ms = {first_ms};
}

bool wants_turn(const Contender& contender, int reps) {
  const double spent = static_cast<double>(contender.samples_ms.size()) * contender.median_ms() * contender.calls;
  return !contender.slow || (static_cast<int>(contender.samples_ms.size()) < reps && spent < kSlowBudgetMs);
}

bool try_rounds(std::vector<Contender>& contenders, int reps, Turns& turns) {
  double alone_ms = 0;
  if (contenders[0].yardstick) {
    std::vector<double> alone;
    turns.begin(contenders[0]);
    for (int round = 0; round < reps; ++round) alone.push_back(time_ms(contenders[0], contenders[0].calls));
    alone_ms = median(alone);
  }
  for (Contender& contender : contenders)
    if (!contender.slow) contender.samples_ms.clear();
  for (int round = 0; round < reps; ++round)
    for (Contender& contender : contenders) {
      if (!wants_turn(contender, reps)) continue;
      turns.begin(contender);
      contender.samples_ms.push_back(time_ms(contender, contender.calls));
    }
  return !contenders[0].yardstick || std::abs(contenders[0].median_ms() / alone_ms - 1) <= kAgreement;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Contender::median_ms() const { return median(samples_ms); }

bool measure_rounds(std::vector<Contender>& contenders, int reps) {
  PATINA_CHECK(!contenders.empty() && reps >= 1, "{} contenders, {} rounds", contenders.size(), reps);
  Turns turns;
  for (Contender& contender : contenders) prepare(contender, turns);
  for (int attempt = 0; attempt < kTries; ++attempt)
    if (try_rounds(contenders, reps, turns)) return true;
  return false;
}

}  // namespace patina
