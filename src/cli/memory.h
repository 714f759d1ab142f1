// What the process takes of the machine's memory.
#pragma once

#include <cstdint>

namespace patina {

int64_t resident_bytes();   // with the pages of mapped files
int64_t anonymous_bytes();  // without them
int64_t machine_bytes();    // physical memory
int64_t free_bytes();       // of it, without swapping: for new work

}  // namespace patina
