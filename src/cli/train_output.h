// The directory that a training run writes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "adapter/files.h"
#include "base/append_file.h"
#include "cli/events.h"

namespace patina {

// Made before a run, so that one that could not be saved does not start; filled at its end, all files or none.
class OutputDirectory {
 public:
  // What becomes of what is in the directory already.
  enum class Earlier : uint8_t { kRefuse, kReplace, kResume };
  // Makes the directory where there is none and locks it. Error(kUsage) where another run has it, or something is in it
  // that is to be refused; Error(kIo) where it cannot be written.
  OutputDirectory(std::filesystem::path path, Earlier earlier);
  // Removes the directory where this run made it and put nothing in.
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  struct File {
    std::filesystem::path path;
    std::string format;  // "peft", "gguf"
    int64_t tensors, bytes;
  };
  // Writes train_log.json and the adapter: adapter_config.json and adapter_model.safetensors, or adapter.safetensors
  // (LyCORIS) where PEFT has no form for it, or lokr_weights.safetensors (the same) for LoKr of a diffusion
  // transformer; and adapter.gguf where GGUF has one. Files of these names are replaced or removed, others in the
  // directory stay. Returns what adapters lie in.
  std::vector<File> write(const AdapterFile& adapter, const AdapterBase& base, const Json& log);

  // Writes the adapter alone, in one format, to milestones/`name`, and removes all but the newest `keep` (by name)
  // there.
  std::filesystem::path write_milestone(const std::string& name, const AdapterFile& adapter, const AdapterBase& base,
                                        int64_t keep);
  void remove_milestones();  // of an earlier run; nothing else that lies there

  const std::filesystem::path& path() const { return path_; }

 private:
  std::vector<std::filesystem::path> milestones() const;  // newest first

  std::filesystem::path path_;
  bool made_ = false;
  std::optional<DirectoryLock> lock_;
};

// Error(kUsage) where a run in `out` would replace what it reads: a file, or a directory of files, given by `flag`.
void refuse_own_input(const std::filesystem::path& out, const std::filesystem::path& input, const char* flag);

}  // namespace patina
