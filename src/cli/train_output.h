// The directory that a training run writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "adapter/files.h"
#include "cli/events.h"

namespace patina {

// Made before a run, so that one that could not be saved does not start; filled at its end, all files or none.
class OutputDirectory {
 public:
  // Makes the directory where there is none. Error(kUsage) where something is in it already and not `overwrite`,
  // Error(kIo) where it cannot be written.
  OutputDirectory(std::filesystem::path path, bool overwrite);
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
  // (LyCORIS) where PEFT has no form for it; and adapter.gguf where GGUF has one. Files of these names are replaced or
  // removed, others in the directory stay. Returns what adapters lie in.
  std::vector<File> write(const AdapterFile& adapter, const AdapterBase& base, const Json& log);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

}  // namespace patina
