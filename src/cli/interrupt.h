// Signals: what asks a run to end, and what a damaged file does to one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace patina {

// From now on SIGINT, SIGTERM and SIGHUP end the process as they do by themselves, but leave no half written file.
// Those that are ignored (nohup) stay so.
void clean_up_on_signals();
// SIGINT, SIGTERM and, where it is not ignored, SIGHUP: the first asks a run to end after the step in progress, the
// second ends the process at once.
void catch_interrupts();
// The signal that came, 0 while none did.
int interrupt_signal();

// From now on, where the system cannot supply a page of a mapped file any more (it was cut, or its disk failed), the
// process ends with status 1 and a line that names the file, instead of SIGBUS.
void watch_mapped_file(std::span<const std::byte> bytes, const std::string& path);

}  // namespace patina
