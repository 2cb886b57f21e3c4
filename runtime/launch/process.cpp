#include "runtime/launch/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/open_files.hpp"
#include "runtime/comm/bootstrap/store/door.hpp"
#include "runtime/comm/bootstrap/store/secret.hpp"

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

// A ringrun started by mpirun or srun is a launcher, not a rank: its own place must not be taken
// for that of its ranks. RINGSMITH_MEETING_DIR would have them meet elsewhere.
constexpr std::array<std::string_view, 6> kDropped{
    "OMPI_COMM_WORLD_",        "PMIX_", "PMI_", "RINGSMITH_MEETING_DIR", "RINGSMITH_SECRET_FILE",
    comm::store::kDoorVariable};

bool dropped(std::string_view name) {
  return std::any_of(kDropped.begin(), kDropped.end(), [name](std::string_view start) {
    return name.substr(0, start.size()) == start;
  });
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

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const RankPlace& place, const StorePlace& store) {
  std::map<std::string, std::string> ours{
      {"RANK", std::to_string(place.rank)},
      {"WORLD_SIZE", std::to_string(place.world)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world)},
      {"GROUP_RANK", std::to_string(place.node)},
      {"GROUP_WORLD_SIZE", std::to_string(place.nodes)},
      {"MASTER_ADDR", store.address},
      {"MASTER_PORT", std::to_string(store.port)},
      {"RINGSMITH_STORE", "launcher"},
      {comm::kSecretVariable, store.secret},
  };
  if (!store.door.empty()) ours[comm::store::kDoorVariable] = store.door;
  std::vector<std::string> out;
  bool threads_chosen = false;
  for (const std::string& variable : inherited) {
    const std::string name = variable.substr(0, variable.find('='));
    if (dropped(name) || ours.count(name) != 0) continue;
    threads_chosen = threads_chosen || name == "OMP_NUM_THREADS";
    out.push_back(variable);
  }
  if (!threads_chosen && place.local_world > 1) ours["OMP_NUM_THREADS"] = "1";
  for (const auto& [name, value] : ours) out.emplace_back(name).append("=").append(value);
  return out;
}

}  // namespace ringsmith::launch
