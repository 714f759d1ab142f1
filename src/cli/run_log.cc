#include "cli/run_log.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/console.h"
#include "formats/tensorboard.h"

namespace patina {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kEvents = "events.jsonl";
constexpr const char* kTensorBoardDirectory = "tensorboard";
constexpr const char* kTensorBoard = "tensorboard/events.out.tfevents.patina";
constexpr const char* kReport = "report.html";
constexpr std::chrono::seconds kBetweenReports{10};

// Which fields TensorBoard shows, under which names.
struct Scalar {
  const char *event, *field, *tag;
};
constexpr Scalar kScalars[] = {{"step", "loss", "loss/train"},
                               {"step", "lr", "step/learning_rate"},
                               {"step", "gradNorm", "step/gradient_norm"},
                               {"step", "tokensPerSecond", "step/tokens_per_second"},
                               {"eval", "loss", "loss/validation"}};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As Markdown takes it: every line as it is.
std::string code(const std::string& text) {
  std::string block = "    ";
  for (const char c : text) block += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return block;
}

// What TensorBoard gets of an event; empty for nothing.
std::string tensorboard_record(const std::string& name, const Json& fields) {
  if (name == "start") return tensorboard_text(wall_seconds(), 0, "configuration", "    " + to_line(fields));
  if (name == "sample") {
    const std::string tag = fmt::format("samples/{}", fields.at("number").get<int64_t>());
    return tensorboard_text(wall_seconds(), fields.at("step"), tag,
                            fmt::format("Prompt\n\n{}\n\nAdapter\n\n{}\n\nBase model\n\n{}", code(fields.at("prompt")),
                                        code(fields.at("text")), code(fields.at("base"))));
  }
  std::vector<TensorBoardScalar> scalars;
  for (const Scalar& scalar : kScalars)
    if (name == scalar.event && fields.at(scalar.field).is_number())
      scalars.push_back({scalar.tag, fields.at(scalar.field)});
  return scalars.empty() ? "" : tensorboard_scalars(wall_seconds(), fields.at("step"), scalars);
}

void say_given_up(const Error& error) { say("\npatina: warning: {}; the run goes on without it\n", error.what()); }

}  // namespace

void RunLog::attempt(File& file, const std::function<void(AppendFile&)>& action) {
  try {
    if (file.file != nullptr) action(*file.file);
  } catch (const Error& error) {
    file.file.reset();
    say_given_up(error);
  }
}

RunLog::RunLog(const fs::path& directory, const Json& lengths)
    : directory_(directory), events_{kEvents, nullptr}, tensorboard_{kTensorBoard, nullptr} {
  std::error_code ignored;  // opening the file in it says what is wrong
  fs::create_directory(directory / kTensorBoardDirectory, ignored);
  for (File* file : {&events_, &tensorboard_}) try {
      const int64_t keep = lengths.is_object() ? lengths.value(file->name, int64_t{0}) : 0;
      file->file = std::make_unique<AppendFile>(directory / file->name, keep);
    } catch (const Error& error) {
      say_given_up(error);
    }
  attempt(tensorboard_, [](AppendFile& file) {
    if (file.size_bytes() == 0) file.append(tensorboard_begin(wall_seconds()));
  });
  attempt(events_, [&](AppendFile& file) {
    if (file.size_bytes() == 0) return;
    std::istringstream lines(read_file(directory / kEvents));
    for (std::string line; std::getline(lines, line);) {
      Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object() || !event.contains("event")) continue;
      const std::string name = event.at("event");
      event.erase("event");
      report_.add(name, event);
    }
  });
}

void RunLog::add(const std::string& name, const Json& fields) {
  attempt(events_, [&](AppendFile& file) { file.append(event_line(name, fields)); });
  attempt(tensorboard_, [&](AppendFile& file) { file.append(tensorboard_record(name, fields)); });
  report_.add(name, fields);
  if (name == "done" || name == "fatal" || Clock::now() - reported_ >= kBetweenReports) write_report();
}

void RunLog::write_report() {
  if (report_fails_) return;
  try {
    write_file(directory_ / kReport, report_.html());
  } catch (const Error& error) {
    report_fails_ = true;
    say_given_up(error);
  }
  reported_ = Clock::now();
}

Json RunLog::lengths() {
  Json lengths = Json::object();
  for (File* file : {&events_, &tensorboard_})
    attempt(*file, [&](AppendFile& open) {
      open.sync();
      lengths[file->name] = open.size_bytes();
    });
  return lengths;
}

}  // namespace patina
