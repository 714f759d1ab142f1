#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace patina {

namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void on_signal(int signal) {
  if (received.exchange(signal) != 0) {
    remove_unfinished_files();
    _exit(128 + signal);
  }
  constexpr std::string_view kText =
      "\npatina: ending; a step that has begun is finished first and the adapter written; once more to stop at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
}

// Set with SA_RESETHAND: what is raised here ends the process, so that its parent sees by which signal.
void on_last_signal(int signal) {
  remove_unfinished_files();
  raise(signal);
}

// Read by the handler, and written where none of them is.
struct Watched {
  std::span<const std::byte> bytes;
  std::string message;
};
std::vector<Watched> watched;

void on_bus_error(int signal, siginfo_t* info, void*) {
  const std::byte* const address = static_cast<const std::byte*>(info->si_addr);
  for (const Watched& one : watched) {
    if (address < one.bytes.data() || address >= one.bytes.data() + one.bytes.size()) continue;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, one.message.data(), one.message.size());
    _exit(1);
  }
  std::signal(signal, SIG_DFL);  // not ours: the instruction runs again, and the process ends as it would have
}

}  // namespace

void watch_mapped_file(std::span<const std::byte> bytes, const std::string& path) {
  const std::string start = isatty(STDERR_FILENO) == 1 ? "\n" : "";  // below a bar
  watched.push_back({bytes, start + "patina: " + path +
                                ": became shorter, or its disk failed, while it was in use; get the file again\n"});
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void clean_up_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_last_signal;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // ignored: nohup
}

int interrupt_signal() { return received; }

}  // namespace patina
