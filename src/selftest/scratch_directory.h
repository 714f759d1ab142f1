// A directory for the files of one run, in memory where the machine has such, and gone at the end.
#pragma once

#include <filesystem>

namespace patina {

class ScratchDirectory {
 public:
  ScratchDirectory();  // Error(kIo) where there is no place for one
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace patina
