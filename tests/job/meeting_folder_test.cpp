#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/job/bootstrap.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

struct Folder {
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] FileBootstrap join(int rank = 0) const {
    return {path, rank, 2, std::chrono::milliseconds(2000)};
  }
  std::string path = (std::filesystem::temp_directory_path() / "ringsmith-XXXXXX").string();
};

}  // namespace

TEST_CASE("a meeting folder that others may write to is refused", "[bootstrap]") {
  const Folder folder;
  for (const mode_t mode : {0777, 0720, 01702}) {
    REQUIRE(chmod(folder.path.c_str(), mode) == 0);
    CHECK_THROWS_WITH(folder.join(), ContainsSubstring("is writable by other users") &&
                                         ContainsSubstring("chmod 700"));
  }
  REQUIRE(chmod(folder.path.c_str(), 0755) == 0);
  CHECK_NOTHROW(folder.join());
}

TEST_CASE("a meeting folder of another user is refused", "[bootstrap]") {
  const Folder folder;
  if (chown(folder.path.c_str(), 65534, 65534) != 0) {
    WARN("NOT RUN: 'a meeting folder of another user' needs root, to give one away");
    return;
  }
  CHECK_THROWS_WITH(folder.join(), ContainsSubstring("belongs to user 65534"));
}

TEST_CASE("what no rank has written into a meeting folder is an error with a remedy",
          "[bootstrap]") {
  for (const char* verdict : {"", "M", "X who knows"}) {
    const Folder folder;
    std::ofstream(folder.path + "/verdict") << verdict;
    CHECK_THROWS_WITH(folder.join(), ContainsSubstring("remove the meeting folder"));
  }
  for (const char* name : {"rank-0", "rank-1", "verdict"}) {
    const Folder odd;  // a FIFO must not block the reader
    REQUIRE(mkfifo((odd.path + "/" + name).c_str(), 0600) == 0);
    CHECK_THROWS_WITH(odd.join(), ContainsSubstring(std::string(name) + "' is a FIFO") &&
                                      ContainsSubstring("remove the meeting folder"));
  }
  const Folder folder;
  std::ofstream(folder.path + "/rank-1") << "7";  // a world size without the rank's data
  CHECK_THROWS_AS(folder.join(), MismatchError);
  CHECK_THROWS_AS(folder.join(1), MismatchError);
}

TEST_CASE("an earlier job's verdict names its folder as the remedy, once", "[bootstrap]") {
  const Folder folder;
  const FileBootstrap first = folder.join();
  std::string said;
  try {
    static_cast<void>(folder.join());
  } catch (const MismatchError& error) {
    said = error.what();
  }
  const std::string remedy =
      "the meeting folder '" + folder.path + "' was left behind by an earlier job, remove it";
  const auto at = said.find(remedy);
  REQUIRE(at != std::string::npos);
  CHECK(said.find(remedy, at + 1) == std::string::npos);
  CHECK_THROWS_WITH(folder.join(1), ContainsSubstring("rank 0 was given twice") &&
                                        ContainsSubstring(remedy));  // a number not used before

  const Folder late;
  std::ofstream(late.path + "/verdict") << "Trank 0 has waited 2000 ms for the others: rank 1";
  CHECK_THROWS_AS(late.join(), TimeoutError);
  CHECK_THROWS_WITH(late.join(1),
                    ContainsSubstring("2000 ms") &&
                        ContainsSubstring("left behind by an earlier job, remove it"));
}
