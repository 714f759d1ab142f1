// Files that grow while a run goes on: logs whose every line or record is there or not, never a part of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace patina {

class AppendFile {
 public:
  // Opens the file, which is made where there is none, and cuts it to its first keep_bytes (or all, where it is
  // shorter). Error(kIo) naming the path.
  AppendFile(const std::filesystem::path& path, int64_t keep_bytes);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // All of it, at once; where that fails (a full disk) the file is cut back to what it was. Error(kIo).
  void append(std::string_view bytes);
  // Waits until the disk has it. Error(kIo).
  void sync();
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

// Locks a directory for this process until destruction, or the process's end. `held` is false where another process
// has the lock. A file system without locks answers as if it were free.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();
  bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = true;
};

}  // namespace patina
