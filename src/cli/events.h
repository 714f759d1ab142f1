// Events for programs: one JSON object a line on stdout (--jsonl). Fields: docs/events.md.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace patina {

using Json = nlohmann::ordered_json;

class EventWriter {
 public:
  explicit EventWriter(bool enabled) : enabled_(enabled) {}
  // Writes {"event": name, ...fields} at once, so that a reader sees it while the run goes on. A reader that went away
  // ends the events, not the run; check_out() then tells it at the end.
  void write(const std::string& name, const Json& fields);
  // From now on every event goes there too, whether stdout wants it or not.
  void also_to(std::function<void(const std::string& name, const Json& fields)> sink) { sink_ = std::move(sink); }

 private:
  bool enabled_;
  std::function<void(const std::string& name, const Json& fields)> sink_;
};

// The line, with its end.
std::string event_line(const std::string& name, const Json& fields);

// One line; bytes that are no UTF-8 (in paths) become U+FFFD.
std::string to_line(const Json& json);

}  // namespace patina
