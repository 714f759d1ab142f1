#include "cli/memory.h"

#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

namespace patina {

namespace {

struct Statm {
  int64_t size = 0, resident = 0, shared = 0;  // pages
};

Statm read_statm() {
  Statm statm;
  std::ifstream("/proc/self/statm") >> statm.size >> statm.resident >> statm.shared;
  return statm;
}

int64_t page_bytes() { return sysconf(_SC_PAGESIZE); }

}  // namespace

int64_t resident_bytes() { return read_statm().resident * page_bytes(); }

int64_t anonymous_bytes() {
  const Statm statm = read_statm();
  return (statm.resident - statm.shared) * page_bytes();
}

int64_t free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kilobytes = 0;
    if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return machine_bytes();
}

int64_t machine_bytes() { return sysconf(_SC_PHYS_PAGES) * page_bytes(); }

}  // namespace patina
