// SIGINT, SIGTERM and, where it is not ignored, SIGHUP: the first asks a run to end after the step in progress, the
// second ends the process at once.
#pragma once

namespace patina {

void catch_interrupts();
// The signal that came, 0 while none did.
int interrupt_signal();

}  // namespace patina
