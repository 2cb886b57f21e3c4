#include "runtime/job/store/secret.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

struct Folder {
  Folder() : path((std::filesystem::temp_directory_path() / "ringsmith-secret-XXXXXX").string()) {
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name, const std::string& text,
                                 mode_t mode) const {
    const std::string p = path + "/" + name;
    std::ofstream(p) << text;
    REQUIRE(chmod(p.c_str(), mode) == 0);
    return p;
  }
  std::string path;
};

}  // namespace

TEST_CASE("random secrets are long and differ", "[secret]") {
  const Secret a = Secret::random(), b = Secret::random();
  CHECK(a.bytes().size() == 64);
  CHECK(a.bytes() != b.bytes());
}

TEST_CASE("a secret's file is only its owner's, and its content has a length", "[secret]") {
  const Folder folder;
  CHECK(Secret::from_file(folder.file("good", "sixteen letters!\n", 0600)).bytes() ==
        "sixteen letters!");
  CHECK(Secret::from_file(folder.file("read only", "sixteen letters!", 0400)).bytes().size() == 16);
  for (const mode_t mode : {0640, 0604, 0660, 0777})
    CHECK_THROWS_WITH(Secret::from_file(folder.file("open", "sixteen letters!", mode)),
                      ContainsSubstring("chmod 600"));
  CHECK_THROWS_WITH(Secret::from_file(folder.file("short", "too short\n", 0600)),
                    ContainsSubstring("needs at least 16"));
  CHECK_THROWS_WITH(Secret::from_file(folder.file("long", std::string(5000, 'x'), 0600)),
                    ContainsSubstring("more than 4096"));
  for (const std::string simple : {"aaaaaaaaaaaaaaaaaaaa", "abababababababab", "1111222233334444"})
    CHECK_THROWS_WITH(
        Secret::from_file(folder.file("simple", simple, 0600)),
        ContainsSubstring("different characters") && ContainsSubstring("--make-secret FILE"));
  CHECK_THROWS_WITH(Secret::from_file(folder.path), ContainsSubstring("not a regular file"));
  CHECK_THROWS_WITH(Secret::from_file(folder.path + "/none"), ContainsSubstring("/none"));
  REQUIRE(mkfifo((folder.path + "/fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(Secret::from_file(folder.path + "/fifo"),
                    ContainsSubstring("not a regular file"));
}

TEST_CASE("a new secret's file can be read back, and is never written over", "[secret]") {
  const Folder folder;
  const std::string path = folder.path + "/secret";
  Secret::create_file(path);
  const std::string bytes = Secret::from_file(path).bytes();
  CHECK(bytes.size() == 64);
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK_THROWS_WITH(Secret::create_file(path), ContainsSubstring("another name"));
  CHECK(Secret::from_file(path).bytes() == bytes);
}

// A limit on the size of files simulates a full disk.
TEST_CASE("a secret that cannot be written is no file, and the reason is told", "[secret]") {
  const Folder folder;
  for (const rlim_t size : {0, 10}) {
    const std::string path = folder.path + "/secret";
    const pid_t child = fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit none{size, size};
      setrlimit(RLIMIT_FSIZE, &none);
      errno = 0;
      try {
        Secret::create_file(path);
      } catch (const UsageError&) {
        _exit(3);  // a full disk is not the user's mistake
      } catch (const Error& e) {
        const std::string said = e.what();
        _exit(said.find("cannot write") != std::string::npos &&
                      said.find("Success") == std::string::npos
                  ? 0
                  : 2);
      }
      _exit(1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK_FALSE(std::filesystem::exists(path));
  }
}

TEST_CASE("the environment gives the secret itself before a file, and no secret is no error",
          "[secret]") {
  const Folder folder;
  unsetenv(kSecretVariable);
  unsetenv(kSecretFileVariable);
  CHECK_FALSE(Secret::from_environment().has_value());
  setenv(kSecretFileVariable, folder.file("f", "from the secret file", 0600).c_str(), 1);
  CHECK(Secret::from_environment()->bytes() == "from the secret file");
  setenv(kSecretVariable, "from the variable", 1);
  CHECK(Secret::from_environment()->bytes() == "from the variable");
  setenv(kSecretVariable, "", 1);
  CHECK_THROWS_WITH(Secret::from_environment(), ContainsSubstring("variable RINGSMITH_SECRET"));
  unsetenv(kSecretVariable);
  unsetenv(kSecretFileVariable);
}
