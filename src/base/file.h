// Files: read-only maps, whole-file reads, and writes that either happen completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace patina {

// A read-only memory map of a whole file. Movable; unmapped on destruction.
// Errors: Error(kIo) naming the path where the file is missing, unreadable or not a regular file.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Pages of a map: `bytes` starts at a page. read_pages() brings them into memory, release_pages() gives their memory
// back; neither can fail, for they are read again when they are used. A part of a file that is no longer there shows
// itself then.
void read_pages(std::span<const std::byte> bytes);
void release_pages(std::span<const std::byte> bytes);
int64_t page_bytes();

// Reads a whole file. Error(kIo) naming the path.
std::string read_file(const std::filesystem::path& path);

// Collects writes in a uniquely named temporary file beside `path`; commit() syncs it, renames it over `path` and syncs
// the directory. Without commit() the destructor removes the temporary file and `path` stays as it was.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  int64_t written_bytes() const { return written_bytes_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  int64_t written_bytes_ = 0;
};

// Removes the temporary files of the AtomicFiles that are being written. May be called in a handler of a signal that
// then ends the process, and nowhere else.
void remove_unfinished_files();

// AtomicFile with the whole content at once.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace patina
