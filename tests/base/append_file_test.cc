#include "base/append_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/file.h"

namespace patina {
namespace {

namespace fs = std::filesystem;

class AppendFileTest : public ::testing::Test {
 protected:
  AppendFileTest() { fs::create_directories(directory_); }
  ~AppendFileTest() override { fs::remove_all(directory_); }
  const fs::path directory_ = fs::temp_directory_path() / fmt::format("patina-append-{}", ::getpid());
  const fs::path path_ = directory_ / "log";
};

TEST_F(AppendFileTest, GrowsAndIsCutBack) {
  {
    AppendFile file(path_, 0);
    file.append("one\n");
    file.append("two\n");
    file.sync();
    EXPECT_EQ(file.size_bytes(), 8);
    EXPECT_EQ(read_file(path_), "one\ntwo\n");
  }
  {
    AppendFile file(path_, 4);
    EXPECT_EQ(read_file(path_), "one\n");
    file.append("three\n");
  }
  EXPECT_EQ(read_file(path_), "one\nthree\n");
  EXPECT_EQ(AppendFile(path_, 1000).size_bytes(), 10) << "no longer than it is";
  EXPECT_THROW(AppendFile(directory_ / "missing" / "log", 0), Error);
}

// In a process of its own: the limit stays.
TEST_F(AppendFileTest, AWriteThatDoesNotFitLeavesNoPart) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    AppendFile file(path_, 0);
    file.append("12345");
    const rlimit limit{8, 8};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      file.append("67890");
    } catch (const Error& error) {
      _exit(error.kind() == Error::Kind::kIo && file.size_bytes() == 5 ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_file(path_), "12345");
}

TEST_F(AppendFileTest, ALockIsHeldOnce) {
  {
    const DirectoryLock first(directory_);
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(DirectoryLock(directory_).held());
  }
  EXPECT_TRUE(DirectoryLock(directory_).held());
}

// RFC 3720, B.4, and the usual check value.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

}  // namespace
}  // namespace patina
