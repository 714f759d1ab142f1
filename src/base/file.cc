#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace patina {
namespace {

constexpr mode_t kNewFileMode = 0666;  // the umask takes away what the user does not want

[[noreturn]] void fail_io(std::string_view action, const std::filesystem::path& path, int error,
                          std::string_view advice) {
  fail(Error::Kind::kIo, "{}: cannot {}: {}; {}", path.string(), action, std::generic_category().message(error),
       advice);
}

// Owns a descriptor until the end of a scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const { return value_; }

 private:
  int value_;
};

// Opens for reading; `status` is the file's. O_NONBLOCK: a named pipe must be refused, not waited for.
int open_regular(const std::filesystem::path& path, struct stat* status) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_io("open the file", path, errno, "check the path and its permissions");
  if (::fstat(descriptor, status) != 0) {
    const int error = errno;
    ::close(descriptor);
    fail_io("examine the file", path, error, "check the disk");
  }
  if (!S_ISREG(status->st_mode)) {
    ::close(descriptor);
    fail(Error::Kind::kIo, "{}: expected a regular file, found {}; give the path of a file", path.string(),
         S_ISDIR(status->st_mode) ? "a directory" : "a device, pipe or socket");
  }
  return descriptor;
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void sync_directory(const std::filesystem::path& directory) {
  const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) fail_io("open the directory", directory, errno, "check its permissions");
  const Descriptor descriptor(opened);
  // EINVAL: the file system cannot sync directories, so there is nothing to wait for.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL)
    fail_io("sync the directory", directory, errno, "check the disk");
}

// Names of the temporary files that exist, for remove_unfinished_files(). A process writes a few files at a time; one
// for which there is no room here stays behind where a signal ends the process, as after a kill.
constinit std::atomic<const char*> unfinished[8];
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void add_unfinished(const char* path) {
  for (std::atomic<const char*>& slot : unfinished)
    if (const char* expected = nullptr; slot.compare_exchange_strong(expected, path)) return;
}

void drop_unfinished(const char* path) {
  for (std::atomic<const char*>& slot : unfinished)
    if (const char* expected = path; slot.compare_exchange_strong(expected, nullptr)) return;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  struct stat status;
  const Descriptor descriptor(open_regular(path, &status));
  if (status.st_size == 0) return;  // mmap refuses empty maps
  const size_t bytes = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) fail_io("map the file into memory", path, errno, "check the limits on address space");
  data_ = static_cast<const std::byte*>(address);
  size_bytes_ = bytes;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void read_pages(std::span<const std::byte> bytes) {
  void* const begin = const_cast<std::byte*>(bytes.data());
  // First all of it is asked of the disk at once, then it is waited for and entered into the process's page tables.
  ::madvise(begin, bytes.size(), MADV_WILLNEED);
#ifdef MADV_POPULATE_READ  // Linux 5.14
  ::madvise(begin, bytes.size(), MADV_POPULATE_READ);
#endif
}

void release_pages(std::span<const std::byte> bytes) {
  ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_DONTNEED);
}

int64_t page_bytes() { return ::sysconf(_SC_PAGESIZE); }

std::string read_file(const std::filesystem::path& path) {
  struct stat status;
  const Descriptor descriptor(open_regular(path, &status));
  // Read to the end of the file rather than to st_size, which is 0 for /proc and stale for a file that grows.
  constexpr size_t kChunkBytes = 1 << 16;
  std::string content;
  size_t used_bytes = 0;
  content.resize(static_cast<size_t>(status.st_size) + 1);
  while (true) {
    if (used_bytes == content.size()) content.resize(content.size() + kChunkBytes);
    const ssize_t got = ::read(descriptor.get(), content.data() + used_bytes, content.size() - used_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read the file", path, errno, "check the disk");
    if (got == 0) break;
    used_bytes += static_cast<size_t>(got);
  }
  content.resize(used_bytes);
  return content;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  if (!path.has_filename() || std::filesystem::is_directory(path, ignored))
    fail(Error::Kind::kIo, "{}: expected a file name to write, found a directory; add a file name", path.string());
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(Error::Kind::kIo, "{}: expected a file to write, found a device, pipe or socket; choose another name",
         path.string());
  static std::atomic<uint64_t> counter{0};
  do {
    temporary_ = directory_of(path) / fmt::format(".{}.{}-{}.tmp", path.filename().string(), ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0)
    fail_io("create a temporary file beside it", path, errno, "check that its directory exists and is writable");
  add_unfinished(temporary_.c_str());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  drop_unfinished(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PATINA_CHECK(descriptor_ >= 0, "{} was committed already", path_.string());
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_io("write the file", path_, errno, "check the free space of the disk");
    bytes = bytes.subspan(static_cast<size_t>(put));
    written_bytes_ += put;
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  PATINA_CHECK(descriptor_ >= 0, "{} was committed already", path_.string());
  if (::fsync(descriptor_) != 0) fail_io("sync the file", path_, errno, "check the free space of the disk");
  // Network file systems report delayed write errors at close. The descriptor is gone whatever close answers.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
    fail_io("close the file", path_, errno, "check the free space of the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_io("put the new file in place", path_, errno, "check the permissions of its directory");
  drop_unfinished(temporary_.c_str());
  temporary_.clear();
  sync_directory(directory_of(path_));
}

void remove_unfinished_files() {
  for (const std::atomic<const char*>& slot : unfinished)
    if (const char* const path = slot) ::unlink(path);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace patina
