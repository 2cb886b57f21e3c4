// A file is written atomically: the old file is replaced as a whole or left unchanged. Links are
// followed, except another user's in a shared folder. Folders, FIFOs and devices are refused.
#include "runtime/base/atomic_file.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_files.hpp"

using namespace ringsmith;
namespace fs = std::filesystem;

namespace {

struct Folder : testing::TemporaryFolder {
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), {}));
  }
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

mode_t mode_of(const std::string& path) {
  struct stat file {};
  REQUIRE(::lstat(path.c_str(), &file) == 0);
  return file.st_mode;
}

}  // namespace

TEST_CASE("what is no file is refused by its kind, and stays") {
  const Folder folder;
  const std::string fifo = folder / "fifo", socket = folder / "socket", inner = folder / "folder";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  fs::create_directory(inner);
  const struct {
    std::string path, kind;
  } cases[] = {{fifo, "a FIFO"},
               {socket, "a socket"},
               {inner, "a folder"},
               {"/dev/full", "a device"},
               {"/dev/null", "a device"}};
  for (const auto& [path, kind] : cases) {
    CAPTURE(path);
    const std::string link = folder / "link";
    fs::create_symlink(path, link);
    const mode_t before = mode_of(path);
    for (const std::string& name : {path, link}) {
      CHECK(odd_kind(name) == kind);
      CHECK_THROWS_WITH(write_atomically(name, "x"),
                        "cannot write '" + name + "': it is " + kind + "; name a file");
      CHECK_THROWS_AS(try_to_write(name), UsageError);
    }
    CHECK(mode_of(path) == before);
    CHECK(fs::is_symlink(link));
    fs::remove(link);
  }
  CHECK(folder.entries() == 3);
}

TEST_CASE("a link stays, and the file that it names is replaced, whether it was there or not") {
  const Folder folder;
  fs::create_directory(folder / "far");
  for (const bool there : {true, false}) {
    const std::string file = folder / "far/file", first = folder / "first",
                      second = folder / "second";
    fs::remove(file);
    if (there) std::ofstream(file) << "old";
    if (there) REQUIRE(::chmod(file.c_str(), 0640) == 0);
    fs::remove(first);
    fs::remove(second);
    fs::create_symlink("far/file", first);  // relative to its own folder
    fs::create_symlink(first, second);
    try_to_write(second, 1000);
    CHECK(slurp(file) == (there ? "old" : ""));
    CHECK(fs::exists(file) == there);
    write_atomically(second, "new");
    CHECK(slurp(file) == "new");
    CHECK(fs::is_symlink(first));
    CHECK(fs::is_symlink(second));
    CHECK((mode_of(file) & 0777) == (there ? 0640 : 0644));
  }
  fs::create_symlink("round", folder / "round");
  CHECK_THROWS_AS(write_atomically(folder / "round", "x"), UsageError);
  CHECK(folder.entries() == 4);
  CHECK(std::distance(fs::directory_iterator(folder / "far"), {}) == 1);
}

TEST_CASE("a link that another user has put into a folder for everybody is not followed") {
  const Folder folder;
  const std::string link = folder / "link", target = folder / "target";
  std::ofstream(target) << "old";
  fs::create_symlink(target, link);
  REQUIRE(::chmod(folder.path.c_str(), 01777) == 0);
  write_atomically(link, "mine");  // this user made the link
  CHECK(slurp(target) == "mine");
  if (::geteuid() != 0) {
    WARN("NOT RUN: only root can make a link that belongs to another user");
    return;
  }
  constexpr uid_t kOther = 12345;
  REQUIRE(::lchown(link.c_str(), kOther, kOther) == 0);
  CHECK_THROWS_WITH(write_atomically(link, "x"),
                    ContainsSubstring("user 12345") && ContainsSubstring("remove it"));
  CHECK(slurp(target) == "mine");
  REQUIRE(::chmod(folder.path.c_str(), 0755) == 0);
  write_atomically(link, "own folder");
  CHECK(slurp(target) == "own folder");
}

TEST_CASE("names on the way cannot be guessed, and nothing planted there is opened") {
  CHECK(random_name().size() == 16);
  CHECK(random_name() != random_name());
  const Folder folder;
  const std::string file = folder / "file", other = folder / "other";
  std::ofstream(other) << "other";
  // A name that can be guessed must not be used.
  fs::create_symlink(other, file + ".tmp." + std::to_string(::getpid()));
  write_atomically(file, "x");
  CHECK(slurp(other) == "other");
  CHECK(folder.entries() == 3);
  {
    AtomicFile half(file);
    half.write(std::as_bytes(std::span("yy", 2)));
    CHECK(slurp(file) == "x");
  }
  CHECK(slurp(file) == "x");
  CHECK(folder.entries() == 3);
}

TEST_CASE("a disk without room is found before the work, not after it") {
  const Folder folder;
  const std::string file = folder / "file";
  {
    const testing::TinyFiles full_disk(1000);
    try_to_write(file, 1000);
    CHECK_THROWS_WITH(try_to_write(file, 1001), ContainsSubstring("File too large"));
  }
  CHECK_THROWS_AS(try_to_write(file, std::uint64_t{1} << 62), Error);
  CHECK_THROWS_WITH(try_to_write(folder / "gone/file"), ContainsSubstring("No such file"));
  CHECK(folder.entries() == 0);
}
