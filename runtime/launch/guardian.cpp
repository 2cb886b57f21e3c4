#include "runtime/launch/guardian.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::launch {

namespace {

// A group's number comes in: positive to watch it, negative to forget it.
[[noreturn]] void guard(int pipe) {
  std::set<pid_t> groups;
  pid_t message = 0;
  for (;;) {
    const ssize_t n = read(pipe, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof message) break;
    if (message > 0)
      groups.insert(message);
    else
      groups.erase(-message);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guardian::Guardian() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(std::string("pipe: ") + std::strerror(errno));
  pid_ = fork();
  if (pid_ < 0) throw Error(std::string("fork: ") + std::strerror(errno));
  if (pid_ == 0) {
    setsid();  // what the terminal sends to the launcher is not for us
    prctl(PR_SET_NAME, "ringrun-guard");
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    // Whoever reads the launcher's output must see its end.
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    close(ends[1]);
    guard(ends[0]);
  }
  close(ends[0]);
  pipe_ = Descriptor(ends[1]);
}

Guardian::~Guardian() {
  pipe_ = Descriptor();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) { tell(group); }
void Guardian::forget(pid_t group) { tell(-group); }

void Guardian::tell(pid_t message) {
  while (write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace ringsmith::launch
