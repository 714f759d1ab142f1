#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"

namespace patina {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "patina-file-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(directory_); }

  fs::path path(const std::string& name) const { return directory_ / name; }

  int files() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_)) ++count;
    return count;
  }

  fs::path directory_;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename Action>
void expect_io_error(Action action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kIo);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(FileTest, UnfinishedFilesAreRemovedAndFinishedOnesStay) {
  write_file(path("done"), "x");
  AtomicFile first(path("a")), second(path("b"));
  first.write("half");
  EXPECT_EQ(files(), 3);
  remove_unfinished_files();
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(read_file(path("done")), "x");
}

TEST_F(FileTest, WritesReadsAndMaps) {
  std::string content(300'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 % 251);
  write_file(path("a"), content);
  EXPECT_EQ(read_file(path("a")), content);
  MappedFile map(path("a"));
  EXPECT_EQ(text_of(map.bytes()), content);
  EXPECT_EQ(map.path(), path("a"));
  EXPECT_EQ(files(), 1);
}

TEST_F(FileTest, MapMovesAndOutlivesTheName) {
  write_file(path("a"), "first");
  write_file(path("b"), "second");
  MappedFile map(path("a"));
  MappedFile moved(std::move(map));
  map = MappedFile(path("b"));
  write_file(path("a"), "replaced");
  EXPECT_EQ(text_of(moved.bytes()), "first");
  EXPECT_EQ(text_of(map.bytes()), "second");
}

TEST_F(FileTest, EmptyFiles) {
  write_file(path("empty"), "");
  EXPECT_EQ(read_file(path("empty")), "");
  EXPECT_TRUE(MappedFile(path("empty")).bytes().empty());
  EXPECT_TRUE(MappedFile().bytes().empty());
}

TEST_F(FileTest, ReadsFilesWhoseSizeIsNotKnown) { EXPECT_FALSE(read_file("/proc/self/status").empty()); }

TEST_F(FileTest, WithoutCommitTheOldFileStays) {
  write_file(path("a"), "old");
  {
    AtomicFile file(path("a"));
    file.write("half of the new");
    EXPECT_EQ(file.written_bytes(), 15);
    EXPECT_EQ(read_file(path("a")), "old");
    EXPECT_EQ(files(), 2);
  }
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(FileTest, CommitReplacesOnce) {
  write_file(path("a"), "old");
  AtomicFile file(path("a")), other(path("a"));  // two writers do not share a temporary file
  file.write("one ");
  other.write("other");
  file.write("two");
  file.commit();
  EXPECT_EQ(read_file(path("a")), "one two");
  other.commit();
  EXPECT_EQ(read_file(path("a")), "other");
  EXPECT_EQ(files(), 1);
  EXPECT_THROW(file.write("three"), InternalError);
  EXPECT_THROW(file.commit(), InternalError);
}

TEST_F(FileTest, NewFilesFollowTheUmask) {
  const mode_t old_mask = ::umask(022);
  write_file(path("a"), "x");
  ::umask(old_mask);
  struct stat status;
  ASSERT_EQ(::stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST_F(FileTest, ErrorsNameThePath) {
  const std::string missing = path("missing").string();
  expect_io_error([&] { read_file(missing); }, missing + ": cannot open the file: No such file or directory");
  expect_io_error([&] { MappedFile map{fs::path(missing)}; }, missing);
  expect_io_error([&] { read_file(directory_); }, directory_.string() + ": expected a regular file, found a directory");
  expect_io_error([&] { MappedFile map(directory_); }, directory_.string());
  expect_io_error([&] { write_file(directory_, "x"); }, directory_.string());
  expect_io_error([&] { write_file(path("no/such"), "x"); }, path("no/such").string());
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_io_error([&] { read_file(path("pipe")); }, "found a device, pipe or socket");
}

// The limit on file sizes stands in for a full disk: in a child, because it holds for the whole process.
TEST_F(FileTest, AFullDiskIsReported) {
  const auto write_beyond_the_limit = [&] {
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    try {
      write_file(path("big"), std::string(5000, 'x'));
    } catch (const Error& error) {
      const bool named = std::string(error.what()).find(path("big").string()) == 0;
      ::_exit(error.kind() == Error::Kind::kIo && named && files() == 0 ? 0 : 2);
    }
    ::_exit(3);
  };
  EXPECT_EXIT(write_beyond_the_limit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace patina
