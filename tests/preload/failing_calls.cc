// Loaded before the C library (LD_PRELOAD): makes one call fail, as a full or broken disk does.
//   PATINA_FAIL = "write" | "fsync" | "rename"; PATINA_FAIL_PATH = part of the path; PATINA_FAIL_AT = how many calls on
//   such paths go well before. From then on all of them fail. PATINA_FAIL_SIGNAL = number of a signal that the process
//   is sent instead.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool fails(const char* call, const char* path) {
  const char *wanted = std::getenv("PATINA_FAIL"), *part = std::getenv("PATINA_FAIL_PATH"),
             *at = std::getenv("PATINA_FAIL_AT");
  if (wanted == nullptr || part == nullptr || at == nullptr || std::strcmp(wanted, call) != 0) return false;
  static std::atomic<long> seen{0};
  if (std::strstr(path, part) == nullptr || seen++ < std::atol(at)) return false;
  const char* const signal = std::getenv("PATINA_FAIL_SIGNAL");
  if (signal != nullptr) std::raise(std::atoi(signal));
  return signal == nullptr;
}

bool fails(const char* call, int descriptor) {
  char link[32], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return fails(call, path);
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (fails("write", descriptor)) {
    errno = ENOSPC;
    return -1;
  }
  return next<ssize_t (*)(int, const void*, size_t)>("write")(descriptor, bytes, count);
}

int fsync(int descriptor) {
  if (fails("fsync", descriptor)) {
    errno = EIO;
    return -1;
  }
  return next<int (*)(int)>("fsync")(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename", to)) {
    errno = EACCES;
    return -1;
  }
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}
}
