// docs/events.schema.json, as far as it goes: what a line of --jsonl must and may have.
#pragma once

#include <string>

#include "cli/run_patina.h"

namespace patina::testing {

// What is wrong with an event; empty where nothing is.
inline std::string schema_fault(const nlohmann::json& event) {
  static const nlohmann::json schemas =
      nlohmann::json::parse(read_file(PATINA_SOURCE_DIR "/docs/events.schema.json")).at("$defs");
  const std::string name = event.at("event");
  if (!schemas.contains(name)) return "unknown event " + name;
  const nlohmann::json& schema = schemas.at(name);
  for (const std::string field : schema.at("required"))
    if (!event.contains(field)) return name + " lacks " + field;
  for (const auto& [field, value] : event.items()) {
    const std::string where = name + "." + field + " = " + value.dump();
    const nlohmann::json described = schema.at("properties").value(field, nlohmann::json());
    if (described.is_null()) return where + " is not in the schema";
    if (described.contains("const") && described.at("const") != value) return where;
    if (described.contains("enum") && std::ranges::find(described.at("enum"), value) == described.at("enum").end())
      return where;
    nlohmann::json types = described.value("type", nlohmann::json::array());
    if (types.is_array() && std::ranges::find(types, "null") != types.end() && value.is_null()) continue;
    if (types.is_array()) types = types.empty() ? nlohmann::json("") : types.front();
    const std::string type = types;
    if ((type == "string" && !value.is_string()) || (type == "number" && !value.is_number()) ||
        (type == "integer" && !value.is_number_integer()) || (type == "boolean" && !value.is_boolean()) ||
        (type == "object" && !value.is_object()) || (type == "array" && !value.is_array()))
      return where + " is no " + type;
  }
  return "";
}

}  // namespace patina::testing
