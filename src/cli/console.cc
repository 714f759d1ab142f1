#include "cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "base/error.h"

namespace patina {

namespace {

int out_error = 0;  // of the first write to stdout that failed

}  // namespace

void prepare_streams() {
  // Read-only: what is written to a stream that was closed fails, as it did before.
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int opened = open("/dev/null", O_RDONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::clearerr(stderr);
}

bool try_write_out(std::string_view text) {
  if (out_error != 0) return false;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  out_error = errno;
  return false;
}

void write_out(std::string_view text) {
  try_write_out(text);
  check_out();
}

void check_out() {
  if (out_error != 0)
    fail(Error::Kind::kIo, "cannot write to standard output: {}", std::generic_category().message(out_error));
}

}  // namespace patina
