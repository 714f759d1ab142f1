#include "cli/events.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

namespace patina {

EventWriter::EventWriter(bool enabled) : enabled_(enabled) {
  if (enabled_) std::signal(SIGPIPE, SIG_IGN);
}

void EventWriter::write(const std::string& name, const Json& fields) {
  if (!enabled_) return;
  Json event = {{"event", name}};
  event.update(fields);
  const std::string line = to_line(event) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) == line.size() && std::fflush(stdout) == 0) return;
  enabled_ = false;
  fmt::print(stderr, "patina: stdout cannot be written any more: the run goes on without events\n");
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace patina
