#include "cli/events.h"

#include "cli/console.h"

namespace patina {

void EventWriter::write(const std::string& name, const Json& fields) {
  if (sink_) sink_(name, fields);
  if (!enabled_ || try_write_out(event_line(name, fields))) return;
  enabled_ = false;
  say("patina: stdout cannot be written any more: the run goes on without events\n");
}

std::string event_line(const std::string& name, const Json& fields) {
  Json event = {{"event", name}};
  event.update(fields);
  return to_line(event) + "\n";
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace patina
