// The machine that a benchmark runs on: what it can do at most, and whether it is quiet.
#pragma once

#include <cstdint>
#include <string>

#include "base/threads.h"

namespace patina {

std::string cpu_model_name();

// GFLOP/s of independent fused multiply-adds in registers on all threads of the pool (2 operations each), the best of
// several short runs: what no product can exceed.
double multiply_add_peak(ThreadPool& pool);

// How many cores other processes keep busy, from Linux's accounting (a tick is 10 ms: ask over 200 ms or more).
class OtherLoad {
 public:
  OtherLoad();
  double cores() const;  // the mean since construction; 0 where the system does not tell

 private:
  struct Ticks {
    int64_t all = 0, own = 0;
  };
  static Ticks read();
  Ticks first_;
  double start_seconds_;
};

inline constexpr double kBusyCores = 0.1;  // more than this much work of others makes a measurement doubtful

// One benchmark at a time on a machine. The lock ends with the object, or with the process.
class BenchmarkLock {
 public:
  // Where another benchmark runs, calls `waiting` once and waits for it. Error(kIo) where the file cannot be opened.
  explicit BenchmarkLock(FunctionRef<void(const char* path)> waiting);
  ~BenchmarkLock();
  BenchmarkLock(const BenchmarkLock&) = delete;
  BenchmarkLock& operator=(const BenchmarkLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace patina
