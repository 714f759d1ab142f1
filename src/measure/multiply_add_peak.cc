#include <algorithm>
#include <chrono>
#include <vector>

#include "measure/machine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/multiply_add_peak.cc"
#include <hwy/foreach_target.h>  // compiles the part below once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace patina::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns the operations done. The chains are independent: 12 cover the latency of two units, 4 to 5 cycles, and fit
// into 16 registers.
int64_t multiply_add(int64_t rounds, float* result) {
  constexpr int kChains = 12;
  const hn::CappedTag<float, 16> d;
  const auto factor = hn::Set(d, 0.5f), term = hn::Set(d, 1.0f);
  hn::Vec<decltype(d)> chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(d, result[i]);  // unknown and different: none can be left out
  for (int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) chains[i] = hn::MulAdd(chains[i], factor, term);
  for (int i = 0; i < kChains; ++i) result[i] = hn::GetLane(chains[i]);
  return rounds * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace patina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace patina {

namespace {

HWY_EXPORT(multiply_add);

constexpr int64_t kRounds = 2'000'000;  // some 10 ms
constexpr int kRuns = 12;

}  // namespace

double multiply_add_peak(ThreadPool& pool) {
  const auto run = HWY_DYNAMIC_DISPATCH(multiply_add);
  std::vector<int64_t> operations(static_cast<size_t>(pool.size()));
  double best = 0;
  for (int repeat = 0; repeat < kRuns; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    pool.run_on_all([&](int worker) {
      float chains[12];
      for (int i = 0; i < 12; ++i) chains[i] = static_cast<float>(worker * 12 + i);
      operations[static_cast<size_t>(worker)] = run(kRounds, chains);
    });
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    double sum = 0;
    for (const int64_t count : operations) sum += static_cast<double>(count);
    best = std::max(best, sum / elapsed.count());
  }
  return best;
}

}  // namespace patina
#endif
