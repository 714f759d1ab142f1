#include "cli/events.h"

#include "cli/console.h"

namespace patina {

void EventWriter::write(const std::string& name, const Json& fields) {
  if (!enabled_) return;
  Json event = {{"event", name}};
  event.update(fields);
  if (try_write_out(to_line(event) + "\n")) return;
  enabled_ = false;
  say("patina: stdout cannot be written any more: the run goes on without events\n");
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace patina
