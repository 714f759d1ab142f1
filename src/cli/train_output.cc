#include "cli/train_output.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

namespace patina {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPeftFile = "adapter_model.safetensors";
constexpr const char* kGgufFile = "adapter.gguf";
constexpr const char* kLycorisFile = "adapter.safetensors";
constexpr const char* kDitLokrFile = "lokr_weights.safetensors";  // by which players of the music model know it
constexpr const char* kLogFile = "train_log.json";
constexpr const char* kMilestones = "milestones";
// A directory with an adapter_config.json is complete: it comes last.
constexpr const char* kFiles[] = {kPeftFile, kLycorisFile, kDitLokrFile, kGgufFile, kLogFile, "adapter_config.json"};

// Names of what this process, or one that was killed, makes in the directory while it writes.
constexpr std::string_view kStaging = ".patina-", kHalfReport = ".report.html.", kHalfLog = ".train_log.json.";

// What killed runs left: half written files, and staging directories of processes that live no more.
void remove_stale(const fs::path& path) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kHalfReport) || name.starts_with(kHalfLog)) fs::remove(entry.path(), error);
    if (!name.starts_with(kStaging)) continue;
    const int process = std::atoi(name.c_str() + kStaging.size());
    if (process > 0 && kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), error);
  }
}

bool holds_files(const fs::path& path, std::error_code& error) {
  const fs::directory_iterator entries(path, error);
  return std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return !entry.path().filename().string().starts_with(kStaging);
  });
}

// Writes PEFT's form, or LyCORIS' where that is none or not what is read: the file of the weights, and the form's name.
std::pair<const char*, const char*> write_weights(const fs::path& directory, const AdapterFile& adapter,
                                                  const AdapterBase& base) {
  const bool dit_lokr =
      base.family == ModelFamily::kDit && std::holds_alternative<LokrFactors>(adapter.sites[0].factors);
  if (!dit_lokr && format_obstacle(AdapterFormat::kPeft, adapter.sites).empty()) {
    write_adapter(AdapterFormat::kPeft, directory, adapter, base);
    return {kPeftFile, "peft"};
  }
  const char* const file = dit_lokr ? kDitLokrFile : kLycorisFile;
  write_adapter(AdapterFormat::kLycoris, directory / file, adapter, base);
  return {file, "lycoris"};
}

[[noreturn]] void fail_io(const fs::path& path, const std::error_code& error) {
  fail(Error::Kind::kIo, "--out {}: cannot be written: {}; choose another directory", path.string(), error.message());
}

}  // namespace

OutputDirectory::OutputDirectory(fs::path path, Earlier earlier) : path_(std::move(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (fs::exists(status) && !fs::is_directory(status))
    fail(Error::Kind::kUsage, "--out {}: is not a directory; choose another path", path_.string());
  fs::create_directories(path_, error);
  if (error) fail_io(path_, error);
  made_ = !fs::exists(status);  // what create_directories() of GCC 12 returns is true for an existing directory too
  lock_.emplace(path_);
  if (!lock_->held())
    fail(Error::Kind::kUsage, "--out {}: another run is writing there; wait for its end or choose another directory",
         path_.string());
  remove_stale(path_);
  if (earlier == Earlier::kRefuse && holds_files(path_, error))
    fail(Error::Kind::kUsage,
         "--out {}: is not empty; choose another directory, or give --resume to go on with the run in it, or "
         "--overwrite to replace its files",
         path_.string());
  if (error) fail_io(path_, error);
  for (const char* file : kFiles)
    if (fs::is_directory(path_ / file, error))
      fail(Error::Kind::kUsage, "--out {}: {} in it is a directory; move it away or choose another path",
           path_.string(), file);
  AtomicFile(path_ / kLogFile);  // made and removed: shows that files can be written here
}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (made_) fs::remove(path_, ignored);  // fails, as it should, where the directory is not empty
}

std::vector<OutputDirectory::File> OutputDirectory::write(const AdapterFile& adapter, const AdapterBase& base,
                                                          const Json& log) {
  const fs::path staging = path_ / fmt::format("{}{}", kStaging, getpid());
  std::pair<const char*, const char*> weights;
  const bool gguf = format_obstacle(AdapterFormat::kGguf, adapter.sites).empty();
  std::error_code error;
  fs::create_directory(staging, error);
  if (error) fail_io(staging, error);
  try {
    weights = write_weights(staging, adapter, base);
    if (gguf) write_adapter(AdapterFormat::kGguf, staging / kGgufFile, adapter, base);
    write_file(staging / kLogFile, log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    for (const char* file : kFiles) {
      if (fs::exists(staging / file))
        fs::rename(staging / file, path_ / file);
      else
        fs::remove(path_ / file);  // an earlier run's
    }
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(staging, error);
    fail_io(path_, failure.code());
  } catch (...) {
    fs::remove_all(staging, error);
    throw;
  }
  fs::remove(staging, error);
  std::vector<File> files;
  const auto add = [&](const char* file, const char* format, size_t tensors) {
    files.push_back(
        {path_ / file, format, static_cast<int64_t>(tensors), static_cast<int64_t>(fs::file_size(path_ / file))});
  };
  add(weights.first, weights.second, SafetensorsFile::open(path_ / weights.first).tensors().size());
  if (gguf) add(kGgufFile, "gguf", GgufFile::open(path_ / kGgufFile).tensors().size());
  return files;
}

fs::path OutputDirectory::write_milestone(const std::string& name, const AdapterFile& adapter, const AdapterBase& base,
                                          int64_t keep) {
  const fs::path staging = path_ / fmt::format("{}{}", kStaging, getpid()), directory = path_ / kMilestones;
  std::error_code ignored;
  try {
    fs::create_directory(staging);
    write_weights(staging, adapter, base);
    fs::create_directory(directory);
    fs::remove_all(directory / name);  // of a run that was cut off behind its last checkpoint
    fs::rename(staging, directory / name);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(staging, ignored);
    fail_io(directory, failure.code());
  } catch (...) {
    fs::remove_all(staging, ignored);
    throw;
  }
  std::vector<fs::path> found = milestones();
  for (size_t i = static_cast<size_t>(keep); i < found.size(); ++i) fs::remove_all(found[i], ignored);
  return directory / name;
}

std::vector<fs::path> OutputDirectory::milestones() const {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_ / kMilestones, ignored))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("epoch-") && name.find("-loss-") != std::string::npos)
      found.push_back(entry.path());
  std::ranges::sort(found, std::greater{});
  return found;
}

void OutputDirectory::remove_milestones() {
  std::error_code ignored;
  for (const fs::path& milestone : milestones()) fs::remove_all(milestone, ignored);
  fs::remove(path_ / kMilestones, ignored);  // fails, as it should, where something else is in it
}

void refuse_own_input(const fs::path& out, const fs::path& input, const char* flag) {
  std::error_code ignored;
  bool same = fs::equivalent(out, input, ignored);
  for (const char* file : kFiles) same = same || fs::equivalent(out / file, input, ignored);
  if (same)
    fail(Error::Kind::kUsage, "--out {}: the run would write into {} {}; choose another directory", out.string(), flag,
         input.string());
}

}  // namespace patina
