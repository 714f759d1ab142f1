#include "data/jsonl.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "data/text_file.h"

namespace patina {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, std::variant_size_v<JsonlText>> kFields = {"text", "completion, prompt",
                                                                                  "messages"};
constexpr const char* kWeight = "weight";
constexpr std::string_view kMessageFields = "content, role";
constexpr size_t kShownBytes = 120;  // of what an error quotes from the file

Json parse_json(std::string_view line, std::string_view where) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    fail(Error::Kind::kData, "{}: not valid JSON at byte {} of the line; a .jsonl file holds one JSON object a line",
         where, error.byte);
  } catch (const Json::out_of_range&) {
    fail(Error::Kind::kData, "{}: a number is too large; a .jsonl file holds one JSON object a line, of texts", where);
  }
}

// The names of an object's fields, sorted and joined.
std::string fields_of(const Json& object, std::string_view what, std::string_view where) {
  if (!object.is_object())
    fail(Error::Kind::kData, "{}: expected {} to be a JSON object, found {}", where, what, object.type_name());
  std::string fields;
  for (const auto& [name, value] : object.items()) fields.append(fields.empty() ? "" : ", ").append(name);
  return fields;
}

std::string text_field(const Json& object, const char* name, std::string_view where) {
  const Json& value = object.at(name);
  if (!value.is_string())
    fail(Error::Kind::kData, "{}: expected the field {} to be a text, found {}", where, name, value.type_name());
  return value.get<std::string>();
}

std::vector<ChatMessage> messages_field(const Json& object, std::string_view where) {
  const Json& array = object.at("messages");
  if (!array.is_array() || array.empty())
    fail(Error::Kind::kData, "{}: expected the field messages to be an array of messages, found {}", where,
         array.is_array() ? "an empty array" : array.type_name());
  std::vector<ChatMessage> messages;
  for (const Json& message : array) {
    const std::string fields = fields_of(message, "a message", where);
    if (fields != kMessageFields)
      fail(Error::Kind::kData,
           "{}: expected a message to have the fields {}, found {}; add what is missing, remove the rest", where,
           kMessageFields, json_quoted(std::string_view(fields).substr(0, kShownBytes)));
    messages.push_back({text_field(message, "role", where), text_field(message, "content", where)});
  }
  return messages;
}

double take_weight(Json& object, std::string_view where) {
  if (!object.is_object() || !object.contains(kWeight)) return 1.0;
  const Json value = object.at(kWeight);
  object.erase(kWeight);
  const double weight = value.is_number() ? value.get<double>() : 0.0;
  if (!(weight > 0.0) || !std::isfinite(static_cast<float>(weight)))
    fail(Error::Kind::kData,
         "{}: expected the field weight to be a number above 0, found {}; leave out what weighs nothing", where,
         json_quoted(value.dump().substr(0, kShownBytes)));
  return weight;
}

JsonlText parse_text(const Json& object, std::string_view where) {
  const std::string fields = fields_of(object, "the line", where);
  if (fields == kFields[0]) return text_field(object, "text", where);
  if (fields == kFields[1])
    return Completion{text_field(object, "prompt", where), text_field(object, "completion", where)};
  if (fields == kFields[2]) return messages_field(object, where);
  fail(Error::Kind::kData,
       "{}: expected the fields messages, or prompt and completion, or text, found {}; add what is missing, remove the "
       "rest",
       where, json_quoted(std::string_view(fields).substr(0, kShownBytes)));
}

}  // namespace

std::string_view jsonl_fields(size_t kind) { return kFields.at(kind); }

JsonlSample parse_jsonl_line(std::string_view line, std::string_view where) {
  Json object = parse_json(line, where);
  const double weight = take_weight(object, where);
  return {parse_text(object, where), weight};
}

}  // namespace patina
