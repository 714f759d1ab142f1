#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace patina {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int64_t tasks : {0, 1, 2, 3, 7, 100, 1000}) {
    std::vector<int> runs(static_cast<size_t>(tasks));  // plain: ThreadSanitizer sees that the pool hands results over
    std::vector<int> per_worker(static_cast<size_t>(pool.size()));
    pool.run(tasks, [&](int64_t task, int worker) {
      ++runs.at(static_cast<size_t>(task));
      ++per_worker.at(static_cast<size_t>(worker));
    });
    int64_t total = 0;
    for (const int run : runs) EXPECT_EQ(run, 1);
    for (const int count : per_worker) total += count;
    EXPECT_EQ(total, tasks);
  }
}

TEST_P(ThreadPoolTest, ManySmallJobsInARow) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(3);
  for (int job = 0; job < 20'000; ++job)
    pool.run(3, [&](int64_t task, int) { sums[static_cast<size_t>(task)] += task + job; });
  for (int64_t task = 0; task < 3; ++task)
    EXPECT_EQ(sums[static_cast<size_t>(task)], 20'000 * task + int64_t{19'999} * 10'000);
}

TEST_P(ThreadPoolTest, WakesSleepersForEveryone) {
  ThreadPool pool(GetParam());
  for (int job = 0; job < 30; ++job) {
    std::this_thread::sleep_for(std::chrono::microseconds(job * 20));  // around and beyond the spinning time
    std::vector<int> calls(static_cast<size_t>(pool.size()));
    pool.run_on_all([&](int worker) { ++calls.at(static_cast<size_t>(worker)); });
    for (const int count : calls) EXPECT_EQ(count, 1);
  }
}

// Two threads that share a CPU take turns on it: a worker that finds itself on the caller's leaves, where it may.
TEST_P(ThreadPoolTest, WorkersLeaveTheCallersCpu) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (GetParam() < 2 || CPU_COUNT(&before) < 2) return;  // nowhere to go
  ThreadPool pool(2);
  std::atomic<int> together{0};
  for (int job = 0; job < 200; ++job) {
    std::atomic<int> cpus[2] = {-1, -1};
    pool.run_on_all([&](int worker) { cpus[worker] = sched_getcpu(); });
    together += cpus[0] == cpus[1];
  }
  EXPECT_LT(together, 100);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "the caller itself is left alone";
}

TEST_P(ThreadPoolTest, CarriesTheExceptionAndDropsTheRest) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int64_t> begun{0};
    try {
      pool.run(1'000'000, [&](int64_t task, int) {
        ++begun;
        if (task == 5) throw std::runtime_error("task 5");
        if (task > 5)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the other workers cannot finish the rest
      });
      ADD_FAILURE() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "task 5");
    }
    EXPECT_GE(begun, 6);
    EXPECT_LT(begun, 1'000'000);
    EXPECT_THROW(pool.run_on_all([&](int worker) {
      if (worker == pool.size() - 1) throw std::logic_error("last");
    }),
                 std::logic_error);
    std::atomic<int> after{0};
    pool.run(10, [&](int64_t, int) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST_P(ThreadPoolTest, AJobInsideAJobIsRefused) {
  ThreadPool pool(GetParam());
  EXPECT_THROW(pool.run(4, [&](int64_t, int) { pool.run(1, [](int64_t, int) {}); }), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

// All workers are really there at once: each waits for all the others.
TEST(ThreadPool, RunOnAllIsSimultaneous) {
  ThreadPool pool(4);
  std::atomic<int> present{0};
  pool.run_on_all([&](int) {
    ++present;
    while (present < 4) std::this_thread::yield();
  });
  EXPECT_EQ(present, 4);
}

TEST(ThreadPool, RunUsesMoreThanTheCaller) {
  ThreadPool pool(2);
  std::atomic<int> present{0};
  pool.run(2, [&](int64_t, int) {  // neither task ends before the other has begun
    ++present;
    while (present < 2) std::this_thread::yield();
  });
  EXPECT_EQ(present, 2);
}

TEST(ThreadPool, ThreadCountIsChecked) { EXPECT_THROW(ThreadPool(0), InternalError); }

TEST(BackgroundThread, WorksUntilNothingIsLeftAfterEachWake) {
  std::atomic<int> given{0}, taken{0};
  BackgroundThread thread([&] {
    if (taken == given) return false;
    ++taken;
    return true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(taken, 0);
  for (int round = 0; round < 1000; ++round) {
    given += round % 3;
    thread.wake();
    while (taken != given) std::this_thread::yield();  // a lost wake-up would hang here
  }
}

TEST(BackgroundThread, EndsInTheMiddleOfItsWork) {
  std::atomic<bool> working{false};
  BackgroundThread thread([&] {
    working = true;
    return true;  // there is always more
  });
  thread.wake();
  while (!working) std::this_thread::yield();
}

TEST(DefaultThreads, FollowsTheAffinityMask) {
  EXPECT_GE(default_threads(), 1);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(default_threads(), CPU_COUNT(&before));
  size_t first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(default_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace patina
