#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace patina {
namespace {

constexpr std::chrono::microseconds kSpinTime{20};
constexpr int kSpinsPerClockRead = 16;
constexpr size_t kCacheLineBytes = 64;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits for `ready` for about kSpinTime; false where it did not come.
template <typename Ready>
bool spin(Ready ready) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  return false;
}

template <typename Ready>
void spin_then_yield(Ready ready) {
  if (spin(ready)) return;
  while (!ready()) std::this_thread::yield();
}

// The pool's state in one word: who is inside the job, whether it can still be joined, and which job it is. A job is
// joined by whichever workers get there in time and ends when all tasks are done and nobody is inside, so a worker that
// sleeps or has lost its core to another process delays nobody.
constexpr uint64_t kOneInside = 1;
constexpr uint64_t kInsideMask = (1 << 16) - 1;
constexpr uint64_t kOpen = 1 << 16;
constexpr uint64_t kStop = 1 << 17;
constexpr int kJobShift = 18;

uint64_t job_of(uint64_t state) { return state >> kJobShift; }

constexpr size_t kCpuMasks = 8;  // 8192 CPUs, the most that Linux can be built for
struct CpuSet {
  cpu_set_t masks[kCpuMasks];

  // The CPUs that this thread may use; false where Linux does not tell.
  bool read() { return sched_getaffinity(0, sizeof masks, masks) == 0; }
  bool has(int cpu) const { return cpu >= 0 && CPU_ISSET_S(static_cast<size_t>(cpu), sizeof masks, masks); }
};

}  // namespace

struct ThreadPool::Shared {
  using Body = FunctionRef<void(int64_t, int)>;

  // Written by the caller while no worker is inside; workers read them after they have joined.
  const Body* body = nullptr;
  int64_t tasks = 0;
  bool everyone = false;  // each worker calls the body once, rather than taking tasks
  std::exception_ptr error;

  alignas(kCacheLineBytes) std::atomic<uint64_t> state{0};
  alignas(kCacheLineBytes) std::atomic<int64_t> next_task{0};
  std::atomic<int> missing{0};  // workers yet to finish a job for everyone
  std::atomic<bool> failed{false};
  alignas(kCacheLineBytes) std::atomic<bool> busy{false};
  std::atomic<int> sleepers{0};
  std::mutex sleep_mutex;
  std::condition_variable wake_up;
  std::vector<std::thread> workers;
  CpuSet allowed;
  bool knows_allowed = false;
  std::unique_ptr<std::atomic<int>[]> cpus;  // on which CPU each thread was in its last job

  // Linux may wake a worker on the very CPU that wakes it and leave it there, although another is idle: jobs are too
  // short for its balancing. Measured on two cores, in a virtual machine: every second run of a product at half speed,
  // for seconds. So a worker that finds itself on the CPU of the caller, or of a worker before it, leaves.
  void stand_apart(int worker) {
    const int cpu = sched_getcpu();
    cpus[static_cast<size_t>(worker)].store(cpu, std::memory_order_relaxed);
    if (!knows_allowed || cpu < 0) return;
    const auto cpu_of = [&](int other) { return cpus[static_cast<size_t>(other)].load(std::memory_order_relaxed); };
    int other = 0;
    while (other < worker && cpu_of(other) != cpu) ++other;
    if (other == worker) return;
    CpuSet free = allowed;
    for (int taken = 0; taken <= static_cast<int>(workers.size()); ++taken)
      if (const int at = cpu_of(taken); free.has(at)) CPU_CLR_S(static_cast<size_t>(at), sizeof free.masks, free.masks);
    if (CPU_COUNT_S(sizeof free.masks, free.masks) > 0) sched_setaffinity(0, sizeof free.masks, free.masks);
  }

  // Makes a new state visible. Sequentially consistent, as is the worker's side: either we see that it sleeps, or it
  // sees the new state before it does.
  void publish(uint64_t next) {
    state.store(next);
    if (sleepers.load() == 0) return;
    { const std::lock_guard lock(sleep_mutex); }
    wake_up.notify_all();
  }

  void stop() {
    publish((job_of(state.load()) + 1) << kJobShift | kStop);
    for (std::thread& worker : workers) worker.join();
  }

  uint64_t next_state(uint64_t seen) {
    const auto changed = [&] { return job_of(state.load(std::memory_order_acquire)) != seen; };
    if (!spin(changed)) {
      std::unique_lock lock(sleep_mutex);
      sleepers.fetch_add(1);
      wake_up.wait(lock, [&] { return job_of(state.load()) != seen; });
      sleepers.fetch_sub(1);
    }
    return state.load(std::memory_order_acquire);
  }

  void work(int worker) {
    uint64_t seen = 0;
    while (true) {
      uint64_t now = next_state(seen);
      if (now & kStop) return;
      seen = job_of(now);
      bool joined = false;
      while (!joined && job_of(now) == seen && (now & kOpen))
        joined =
            state.compare_exchange_weak(now, now + kOneInside, std::memory_order_acq_rel, std::memory_order_acquire);
      if (!joined) continue;
      stand_apart(worker);
      take_part(worker);
      state.fetch_sub(kOneInside, std::memory_order_release);
    }
  }

  void take_part(int worker) {
    try {
      if (everyone) {
        (*body)(worker, worker);
      } else {
        int64_t task;
        while ((task = next_task.fetch_add(1, std::memory_order_relaxed)) < tasks) (*body)(task, worker);
      }
    } catch (...) {
      next_task.store(tasks, std::memory_order_relaxed);
      if (!failed.exchange(true)) error = std::current_exception();
    }
    if (everyone) missing.fetch_sub(1, std::memory_order_release);
  }

  void run_job(int threads, int64_t job_tasks, bool for_everyone, const Body& job_body) {
    body = &job_body;
    tasks = job_tasks;
    everyone = for_everyone;
    next_task.store(0, std::memory_order_relaxed);
    missing.store(threads, std::memory_order_relaxed);
    cpus[0].store(sched_getcpu(), std::memory_order_relaxed);
    publish((job_of(state.load(std::memory_order_relaxed)) + 1) << kJobShift | kOpen);
    take_part(0);
    if (everyone) spin_then_yield([&] { return missing.load(std::memory_order_acquire) == 0; });
    state.fetch_and(~kOpen, std::memory_order_acq_rel);
    spin_then_yield([&] { return (state.load(std::memory_order_acquire) & kInsideMask) == 0; });
    if (failed.load(std::memory_order_relaxed)) {
      failed.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(error, nullptr));
    }
  }
};

namespace {

// Marks the pool as busy during one job.
class Occupied {
 public:
  explicit Occupied(std::atomic<bool>& busy) : busy_(busy) {
    PATINA_CHECK(!busy_.exchange(true, std::memory_order_acquire), "a job was started inside or beside another one");
  }
  Occupied(const Occupied&) = delete;
  Occupied& operator=(const Occupied&) = delete;
  ~Occupied() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& busy_;
};

}  // namespace

ThreadPool::ThreadPool(int threads) : shared_(std::make_unique<Shared>()), threads_(threads) {
  PATINA_CHECK(threads >= 1 && static_cast<uint64_t>(threads) <= kInsideMask, "{} threads", threads);
  shared_->workers.reserve(static_cast<size_t>(threads - 1));
  shared_->knows_allowed = shared_->allowed.read();
  shared_->cpus = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) shared_->cpus[static_cast<size_t>(i)] = -1;
  try {
    for (int worker = 1; worker < threads; ++worker)
      shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->work(worker); });
  } catch (const std::system_error& error) {
    shared_->stop();
    fail(Error::Kind::kUsage, "cannot start {} threads: {}; ask for fewer", threads, error.what());
  }
}

ThreadPool::~ThreadPool() { shared_->stop(); }

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body) {
  const Occupied occupied(shared_->busy);
  if (threads_ > 1 && tasks > 1) {
    shared_->run_job(threads_, tasks, false, body);
  } else {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
  }
}

void ThreadPool::run_on_all(FunctionRef<void(int worker)> body) {
  const Occupied occupied(shared_->busy);
  if (threads_ > 1) {
    shared_->run_job(threads_, threads_, true, [&](int64_t, int worker) { body(worker); });
  } else {
    body(0);
  }
}

struct BackgroundThread::Shared {
  std::function<bool()> work;
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;
  std::atomic<bool> stop{false};
  std::thread thread;

  void run() {
    while (true) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return woken || stop; });
        woken = false;
      }
      do
        if (stop) return;
      while (work());
    }
  }
};

BackgroundThread::BackgroundThread(std::function<bool()> work) : shared_(std::make_unique<Shared>()) {
  shared_->work = std::move(work);
  try {
    shared_->thread = std::thread([shared = shared_.get()] { shared->run(); });
  } catch (const std::system_error& error) {
    fail(Error::Kind::kUsage, "cannot start a thread: {}", error.what());
  }
}

BackgroundThread::~BackgroundThread() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->changed.notify_one();
  shared_->thread.join();
}

void BackgroundThread::wake() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->woken = true;
  }
  shared_->changed.notify_one();
}

int default_threads() {
  CpuSet allowed;
  if (!allowed.read()) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // A core is known by the list of its siblings; where Linux does not tell, each CPU counts as a core.
  std::set<std::string> cores;
  for (int cpu = 0; cpu < static_cast<int>(kCpuMasks * CPU_SETSIZE); ++cpu) {
    if (!allowed.has(cpu)) continue;
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = fmt::format("{}", cpu);
    cores.insert(siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace patina
