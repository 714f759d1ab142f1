// What the program writes: text for people on stderr, results and events on stdout.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace patina {

// Before anything else: makes every failing write answer with an error instead of a signal (a pipe without a reader, a
// limit on file sizes), and occupies standard streams that are closed, so that no file of ours becomes one of them.
void prepare_streams();

// Text for people never ends a run: where stderr cannot be written, it is lost.
void say(std::string_view text);
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

// False where stdout cannot be written (any more).
bool try_write_out(std::string_view text);
// The same for results: Error(kIo) where they cannot be written.
void write_out(std::string_view text);
// Error(kIo) where something written to stdout was lost.
void check_out();

}  // namespace patina
