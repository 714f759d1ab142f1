#include "measure/machine.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace patina {

namespace {

constexpr const char* kLockPath = "/tmp/patina-benchmark.lock";  // one for all users

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  utsname system;
  return uname(&system) == 0 ? std::string(system.machine) + " processor" : "unknown processor";
}

OtherLoad::Ticks OtherLoad::read() {
  Ticks ticks;
  // cpu user nice system idle iowait irq softirq steal: steal is time that this machine did not get at all.
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  for (int field = 0; field < 8; ++field) {
    int64_t value = 0;
    file >> value;
    if (field != 3 && field != 4) ticks.all += value;
  }
  if (!file) return {};
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  const auto microseconds = [](const timeval& time) { return int64_t{time.tv_sec} * 1000000 + time.tv_usec; };
  ticks.own = (microseconds(usage.ru_utime) + microseconds(usage.ru_stime)) * sysconf(_SC_CLK_TCK) / 1000000;
  return ticks;
}

OtherLoad::OtherLoad() : first_(read()), start_seconds_(seconds_now()) {}

double OtherLoad::cores() const {
  const Ticks now = read();
  const double ticks = static_cast<double>((now.all - first_.all) - (now.own - first_.own));
  const double elapsed = (seconds_now() - start_seconds_) * static_cast<double>(sysconf(_SC_CLK_TCK));
  return elapsed > 0 ? std::max(0.0, ticks / elapsed) : 0.0;
}

BenchmarkLock::BenchmarkLock(FunctionRef<void(const char* path)> waiting) {
  // Opened before it is made: Linux may refuse O_CREAT for a file in /tmp that is another user's.
  descriptor_ = open(kLockPath, O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) descriptor_ = open(kLockPath, O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    fail(Error::Kind::kIo, "{}: cannot open the lock file of benchmarks: {}", kLockPath,
         std::generic_category().message(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  waiting(kLockPath);
  while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

BenchmarkLock::~BenchmarkLock() { close(descriptor_); }

}  // namespace patina
