#include "base/append_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace patina {
namespace {

[[noreturn]] void fail_io(const std::filesystem::path& path, std::string_view action, int error) {
  fail(Error::Kind::kIo, "{}: cannot {}: {}; check the disk and the permissions", path.string(), action,
       std::generic_category().message(error));
}

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path, int64_t keep_bytes) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor_ < 0) fail_io(path, "open the file", errno);
  struct stat status;
  int error = ::fstat(descriptor_, &status) != 0 ? errno : 0;
  if (error == 0) {
    size_bytes_ = std::min<int64_t>(status.st_size, keep_bytes);
    if (::ftruncate(descriptor_, size_bytes_) != 0) error = errno;
  }
  if (error == 0) return;
  ::close(descriptor_);
  fail_io(path, "cut the file", error);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view bytes) {
  int64_t at = size_bytes_;
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, size_bytes_);
      fail_io(path_, "write the file", error);
    }
    bytes.remove_prefix(static_cast<size_t>(put));
    at += put;
  }
  size_bytes_ = at;
}

void AppendFile::sync() {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL) fail_io(path_, "sync the file", errno);
}

DirectoryLock::DirectoryLock(const std::filesystem::path& directory)
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  held_ = descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace patina
