#include "runtime/launch/process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

namespace {

constexpr std::chrono::milliseconds kToBegin{10'000};  // for a new process to become its program

bool runnable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("pipe: " + reason_of(errno));
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
  Descriptor read, write;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Between fork and exec: only calls that are safe while other threads hold locks.
[[noreturn]] void become(pid_t launcher, const char* path, char* const* argv, char* const* envp,
                         const Guardian& guardian, int keep, int out, int err, int report) {
  setpgid(0, 0);
  guardian.watch_me();  // now: it may have children before the launcher runs again
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (keep >= 0) fcntl(keep, F_SETFD, 0);
  execve(path, argv, envp);
  const int error = errno;
  if (write(report, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    require(runnable(name), "cannot run '" + name + "': it is no executable file");
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (runnable(candidate)) return candidate;
  }
  throw UsageError("cannot find the program '" + name + "' in PATH" +
                   (runnable("./" + name) ? ": write ./" + name : ""));
}

Process start_process(const std::string& path, const std::vector<std::string>& command,
                      const std::vector<std::string>& environment, Guardian& guardian,
                      const Inherited& inherited) {
  Pipe out, err, report;
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const pid_t launcher = getpid();
  Process process;
  process.pid = fork();
  if (process.pid < 0)
    throw Error("cannot start another process: " + std::string(std::strerror(errno)));
  if (process.pid == 0)
    become(launcher, path.c_str(), argv.data(), envp.data(), guardian, inherited.keep,
           out.write.get(), err.write.get(), report.write.get());
  setpgid(process.pid, process.pid);  // whoever of the two comes first; the group must exist now
  guardian.watch(process.pid);
  report.write = Descriptor();
  // Readable when the program runs, or cannot. Not for ever: the process may have been stopped just
  // now, or its file may be on a server that does not answer.
  std::array<pollfd, 2> entries{{{report.read.get(), POLLIN, 0}, {inherited.hurry, POLLIN, 0}}};
  const Deadline deadline = Deadline::in(kToBegin);
  while (poll(entries.data(), entries.size(), deadline.poll_ms()) < 0 && errno == EINTR) {
  }
  int error = 0;
  if (entries[0].revents != 0 &&
      read(report.read.get(), &error, sizeof error) == sizeof error) {  // else: exec succeeded
    kill(process.pid, SIGKILL);                                         // it may be stopped
    waitpid(process.pid, nullptr, 0);
    guardian.forget(process.pid);
    throw UsageError("cannot run '" + path + "': " + std::strerror(error));
  }
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

}  // namespace ringsmith::launch
