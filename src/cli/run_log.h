// What a run writes beside its adapter while it goes on, all of it made of its events: events.jsonl (every event, as
// --jsonl prints it), tensorboard/ and report.html.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/append_file.h"
#include "cli/report.h"

namespace patina {

// No file of these ever ends a run: one that cannot be written any more is said once, and then left as it is.
class RunLog {
 public:
  // `lengths` as lengths() gave it at a checkpoint: the files are cut back to that. Null for a new run.
  RunLog(const std::filesystem::path& directory, const Json& lengths);

  void add(const std::string& name, const Json& fields);
  // Waits until the disk has all of it, and says how long each file is.
  Json lengths();

 private:
  struct File {
    const char* name;
    std::unique_ptr<AppendFile> file;  // null where it cannot be written any more
  };
  void attempt(File& file, const std::function<void(AppendFile&)>& action);
  void write_report();

  std::filesystem::path directory_;
  File events_, tensorboard_;
  Report report_;
  bool report_fails_ = false;
  std::chrono::steady_clock::time_point reported_;
};

}  // namespace patina
