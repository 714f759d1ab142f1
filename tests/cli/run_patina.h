// Runs the real program, as a user does.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace patina::testing {

struct Outcome {
  int status;  // exit status; 1000 + signal where one ended the process
  std::string out, err;

  // stdout as one JSON value a line.
  std::vector<nlohmann::json> json_lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  size_t error_lines() const { return static_cast<size_t>(std::count(err.begin(), err.end(), '\n')); }
};

// Where the output of a process goes, instead of to files that its Outcome holds: a path, or kClosed.
inline constexpr const char* kClosed = "-";
struct Streams {
  std::string out, err;
};

// What is done in the new process before patina begins: a variable of its environment, a limit.
using Prepare = std::function<void()>;

// A running patina, under that or another name, whose output goes to files in a directory.
class Process {
 public:
  Process(const TempDir& directory, const std::vector<std::string>& arguments, const Streams& streams = {},
          const Prepare& prepare = {}, const std::string& program = PATINA_BINARY)
      : out_(streams.out.empty() ? directory.path() / "stdout.txt" : std::filesystem::path(streams.out)),
        err_(streams.err.empty() ? directory.path() / "stderr.txt" : std::filesystem::path(streams.err)) {
    std::vector<const char*> argv = {program.c_str()};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back(nullptr);
    // What an earlier process left would be taken for this one's.
    if (streams.out.empty()) std::filesystem::remove(out_);
    if (streams.err.empty()) std::filesystem::remove(err_);
    id_ = fork();
    if (id_ < 0) throw std::runtime_error("cannot fork");
    if (id_ > 0) return;
    signal(SIGHUP, SIG_DFL);  // nohup, under which tests may run, ignores it
    const auto redirect = [](const std::filesystem::path& path, int descriptor) {
      if (path == kClosed) {
        close(descriptor);
        return;
      }
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
      if (file != descriptor) close(file);  // it may be a stream that is to be closed
    };
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    if (prepare) prepare();
    execv(program.c_str(), const_cast<char**>(argv.data()));
    _exit(127);
  }

  pid_t id() const { return id_; }
  std::string out_so_far() const { return std::filesystem::exists(out_) ? read_file(out_) : ""; }
  // Until it has printed an event; throws where it ended before.
  void await_event(const std::string& name) const {
    while (out_so_far().find("\"event\":\"" + name + "\"") == std::string::npos) {
      if (waitpid(id_, nullptr, WNOHANG) != 0) throw std::runtime_error("it ended by itself: " + content(err_));
      usleep(1000);
    }
  }
  Outcome wait() const {
    int status = 0;
    if (waitpid(id_, &status, 0) != id_) throw std::runtime_error("cannot wait");
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), content(out_), content(err_)};
  }

 private:
  static std::string content(const std::filesystem::path& path) {
    return std::filesystem::is_regular_file(path) ? read_file(path) : "";
  }

  std::filesystem::path out_, err_;
  pid_t id_ = -1;
};

// Gives a flag another value, or adds it.
inline void set_flag(std::vector<std::string>& arguments, const std::string& flag, const std::string& value) {
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  if (found != arguments.end())
    *(found + 1) = value;
  else
    arguments.insert(arguments.end(), {flag, value});
}

// A directory with a tiny model and a small data set, and patina in it.
class Workplace {
 public:
  explicit Workplace(const TinyModel& model = {}) {
    write_tiny_model(path("model.gguf"), model);
    std::string lines;
    for (const auto& [question, answer] :
         {std::pair{"Who keeps the light?", "Maren."}, std::pair{"What sails?", "A nettle."},
          std::pair{"How many bells?", "Nineteen."}, std::pair{"Where is the otter?", "At the post."}})
      lines +=
          nlohmann::json{
              {"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
              .dump() +
          "\n";
    directory_.write("data.jsonl", lines);
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    return directory_.write(name, content);
  }

  Process start(const std::vector<std::string>& arguments, const Streams& streams = {},
                const Prepare& prepare = {}) const {
    return Process(directory_, arguments, streams, prepare);
  }
  Outcome run(const std::vector<std::string>& arguments, const Streams& streams = {}) const {
    return start(arguments, streams).wait();
  }
  // A run of a few steps, whose every step holds the whole data set.
  std::vector<std::string> train_arguments(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train-lm", "--model", path("model.gguf"), "--data",   path("data.jsonl"), "--out", path(out), "--steps", "3",
        "--rank",   "4",       "--schedule",       "constant", "--warmup",         "0",     "--lr",    "2e-3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Outcome train(const std::string& out, const std::vector<std::string>& more = {}) const {
    return run(train_arguments(out, more));
  }

 private:
  TempDir directory_;
};

}  // namespace patina::testing
