#include "runtime/base/process.hpp"

#include <cerrno>
#include <csignal>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("peak memory sees an allocation that was touched and freed", "[memory]") {
  const Bytes before = resident();
  {
    const std::vector<char> block(64 << 20, 1);
    const volatile char* touched = block.data();  // otherwise clang removes the allocation
    REQUIRE(*touched == 1);
  }
  REQUIRE(peak_resident() >= before + MiB(60));
}

TEST_CASE("what a program may inherit and cannot work with is repaired", "[process]") {
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int stream : {0, 1, 2}) close(stream);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, nullptr);
    pthread_attr_t threads;  // their default with ulimit -s 64
    pthread_attr_init(&threads);
    pthread_attr_setstacksize(&threads, 64 << 10);
    pthread_setattr_default_np(&threads);
    open_standard_streams();
    repair_inheritance();
    std::size_t stack = 0;
    pthread_getattr_default_np(&threads);
    pthread_attr_getstacksize(&threads, &stack);
    if (stack < std::size_t{2} << 20) _exit(6);
    struct stat null {
    }, found{};
    if (stat("/dev/null", &null) != 0) _exit(1);
    for (const int stream : {0, 1, 2})
      if (fstat(stream, &found) != 0 || found.st_rdev != null.st_rdev) _exit(2);
    sigprocmask(SIG_SETMASK, nullptr, &set);
    for (const int signal : {SIGTERM, SIGCHLD, SIGUSR1})
      if (sigismember(&set, signal) != 0) _exit(3);
    _exit(is_ignored(SIGCHLD) ? 4 : !is_ignored(SIGHUP) ? 5 : 0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
}

TEST_CASE(
    "a write beyond the limit of file sizes is an error, and started programs inherit nothing",
    "[process]") {
  const pid_t pid = fork();
  if (pid == 0) {
    repair_inheritance();
    const rlimit tight{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &tight) != 0) _exit(1);
    const Descriptor file(memfd_create("limited", MFD_CLOEXEC));
    if (ftruncate(file.get(), 8192) == 0 || errno != EFBIG) _exit(2);
    const std::string reason = reason_of(EFBIG);
    if (reason.find("limited to files of 4096 bytes") == std::string::npos) _exit(3);
    if (reason.find("ulimit -f") == std::string::npos) _exit(4);
    if (is_ignored(SIGXFSZ)) _exit(5);
    execl("/bin/sh", "sh", "-c", "kill -XFSZ $$", nullptr);
    _exit(6);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGXFSZ);
}

TEST_CASE("a lack of something is another error than its refusal", "[process]") {
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EFBIG})
    CHECK_THROWS_AS(throw_errno("socket", error), ResourceError);
  try {
    throw_errno("socket", EACCES);
  } catch (const CommError& e) {
    CHECK(e.exit_code() == ExitCode::communication);
    CHECK(std::string(e.what()) == "socket: Permission denied");
  }
}
