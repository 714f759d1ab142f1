#include "selftest/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"

namespace patina {

ScratchDirectory::ScratchDirectory() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path disk = fs::temp_directory_path(ignored);
  for (const fs::path& place : {fs::path("/dev/shm"), disk.empty() ? fs::path("/tmp") : disk}) {
    std::string name = (place / "patina_self_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) continue;
    path_ = name;
    return;
  }
  fail(Error::Kind::kIo,
       "{}: cannot make a directory for the synthetic models: {}; set TMPDIR to one that can be written", disk.string(),
       std::generic_category().message(errno));
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace patina
