#include "runtime/launch/guardian.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/launch/failure.hpp"

namespace ringsmith::launch {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kToEnd{2'000};     // for it to kill what is left, and to end
constexpr milliseconds kToBeKilled{500};  // after SIGKILL; longer only in the kernel
constexpr milliseconds kToListen{500};    // to take a message when the pipe is full
constexpr milliseconds kBetweenLooks{2};

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
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("pipe: " + reason_of(errno));
  pid_ = fork();
  if (pid_ < 0) throw Error("fork: " + reason_of(errno));
  if (pid_ == 0) {
    setsid();  // what the terminal sends to the launcher is not for us
    prctl(PR_SET_NAME, "ringrun-guard");
    prctl(PR_SET_PDEATHSIG, SIGCONT);  // should it be stopped when the launcher dies
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
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

Guardian::~Guardian() {
  for (const pid_t group : groups_) kill(-group, SIGKILL);
  pipe_ = Descriptor();
  if (!ended_) kill(pid_, SIGCONT);
  if (has_ended(Deadline::in(kToEnd))) return;
  kill(pid_, SIGKILL);
  (void)has_ended(Deadline::in(kToBeKilled));
}

void Guardian::watch(pid_t group) {
  groups_.insert(group);
  tell(group);
}

void Guardian::forget(pid_t group) {
  groups_.erase(group);
  tell(-group);
}

void Guardian::watch_me() const { tell(getpid()); }

std::string Guardian::obituary() {
  if (told_ || !has_ended(Deadline::in(milliseconds(0)))) return {};
  told_ = true;
  const End end{WIFSIGNALED(status_), false,
                WIFSIGNALED(status_) ? WTERMSIG(status_) : WEXITSTATUS(status_)};
  return "its guardian (pid " + std::to_string(pid_) + ") has ended: " + end.describe() +
         "; should ringrun be killed now, children of the ranks may stay";
}

// A stopped guardian reads nothing. It goes on when it is told to; if it is stopped again at once,
// the launcher's own list must do.
void Guardian::tell(pid_t message) const {
  const Deadline deadline = Deadline::in(kToListen);
  while (write(pipe_.get(), &message, sizeof message) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN || deadline.passed()) return;
    kill(pid_, SIGCONT);
    pollfd entry{pipe_.get(), POLLOUT, 0};
    poll(&entry, 1, deadline.poll_ms());
  }
}

bool Guardian::has_ended(Deadline deadline) {
  while (!ended_) {
    const pid_t found = waitpid(pid_, &status_, WNOHANG);
    ended_ = found == pid_ || (found < 0 && errno == ECHILD);
    if (ended_ || deadline.passed()) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return ended_;
}

}  // namespace ringsmith::launch
