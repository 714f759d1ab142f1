// The one door to parallelism: a pool whose workers spin for about 20 us after a job and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/function_ref.h"

namespace patina {

// Runs tasks on `size()` threads, the caller among them. Which worker runs a task varies from run to run, so a task
// must write only outputs of its own: that is what makes results the same for any number of threads. An exception
// thrown by a task ends the job (tasks not yet begun are dropped) and the first one is thrown again in the caller. One
// job at a time, and none from inside a job: both are an InternalError. run() allocates nothing.
class ThreadPool {
 public:
  // threads >= 1; default_threads() gives the physical cores this process may use.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Calls body(task, worker) once for every task in [0, tasks); worker in [0, size()).
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body);

  // Calls body(worker) once on every worker, at the same time.
  void run_on_all(FunctionRef<void(int worker)> body);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
  int threads_;
};

// A thread beside the pool, for work that waits (for a disk) more than it computes. It sleeps until wake(), then calls
// work() until that returns false; work() throws nothing. The destructor waits for the call under way, not for more.
class BackgroundThread {
 public:
  explicit BackgroundThread(std::function<bool()> work);
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // work() sees all that was written before, now or in a call that begins later. Allocates nothing.
  void wake();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Physical cores in the process's affinity mask (SMT siblings counted once), at least 1.
int default_threads();

}  // namespace patina
