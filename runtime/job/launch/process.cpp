#include "runtime/job/launch/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/job/launch/failure.hpp"
#include "runtime/job/store/coordinator.hpp"
#include "runtime/job/store/door.hpp"
#include "runtime/job/store/secret.hpp"

namespace ringsmith::launch {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kToEnd{2'000};     // for the guardian to kill the groups and end
constexpr milliseconds kToBeKilled{500};  // after SIGKILL; longer only if stuck in the kernel
constexpr milliseconds kToListen{500};    // for the guardian to read when the pipe is full
constexpr milliseconds kBetweenLooks{2};
constexpr milliseconds kToBegin{10'000};  // for a new process to exec its program

// Reads group numbers: positive to watch, negative to forget. When the pipe closes, kills the
// groups that are left.
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

bool runnable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe", errno);
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
  Descriptor read, write;
};

[[noreturn]] void refuse_fork(int error) {
  throw ResourceError("cannot start another process: " + reason_of(error) +
                      (error == EAGAIN ? "; 'ulimit -u' or a pids.max allows no more" : ""));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Fields of /proc/PID/stat that follow the process name.
struct ProcessState {
  char letter = 0;
  pid_t parent = 0, group = 0;
};

template <class Fits>
std::set<pid_t> processes_that(Fits fit) {
  std::set<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::string status;
    if (pid <= 0 || !std::getline(std::ifstream(entry.path() / "stat"), status)) continue;
    ProcessState state;
    std::istringstream after_name(
        status.substr(std::min(status.rfind(')'), status.size() - 1) + 1));
    if (after_name >> state.letter >> state.parent >> state.group && fit(pid, state))
      out.insert(pid);
  }
  return out;
}

std::set<pid_t> children_of(pid_t parent) {
  return processes_that([=](pid_t, const ProcessState& s) { return s.parent == parent; });
}

// Runs in the child between fork and exec, so it must not take locks, which other threads may have
// held during the fork.
[[noreturn]] void become(pid_t launcher, const char* path, char* const* argv, char* const* envp,
                         const Guardian& guardian, int keep, int out, int err, int report) {
  setpgid(0, 0);
  // The child registers itself: the program may have children before the launcher could do it.
  guardian.watch_me();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  // Signals that were ignored when ringrun started stay ignored; ringrun itself blocks signals and
  // ignores none. If the guardian ended before watch_me(), SIGPIPE is pending; ignoring it for a
  // moment discards it.
  const auto before = signal(SIGPIPE, SIG_IGN);
  signal(SIGPIPE, before);
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

std::string bytes_at(const std::string& path, std::uint64_t offset, std::size_t size) {
  std::ifstream in(path, std::ios::binary);
  std::string out(size, '\0');
  in.seekg(static_cast<std::streamoff>(offset))
      .read(out.data(), static_cast<std::streamsize>(size));
  out.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return out;
}

// Returns the loader that a 64-bit ELF program requests; empty if it requests none.
std::string loader_of(const std::string& path) {
  Elf64_Ehdr header{};
  bytes_at(path, 0, sizeof header).copy(reinterpret_cast<char*>(&header), sizeof header);
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    bytes_at(path, header.e_phoff + i * sizeof part, sizeof part)
        .copy(reinterpret_cast<char*>(&part), sizeof part);
    if (part.p_type == PT_INTERP)
      return bytes_at(path, part.p_offset, std::min<std::size_t>(part.p_filesz, PATH_MAX)).c_str();
  }
  return {};
}

// Returns why an executable file cannot run, or an empty string if the reason is unknown. The
// kernel reports a missing interpreter or loader as an error of the file that needs it.
std::string lack_of(const std::string& path, int error, int depth = 0) {
  constexpr std::size_t kFirstLine = 256;  // the kernel looks for the interpreter in these bytes
  constexpr int kMostInterpreters = 5;     // nested scripts; the kernel's limit
  const std::string head = bytes_at(path, 0, kFirstLine);
  const bool elf = head.rfind(ELFMAG, 0) == 0;
  if (error == ENOEXEC && elf) return "it is a program for another processor";
  if (error == ENOEXEC && head.rfind("#!", 0) != 0)
    return "it is neither a program nor a script whose first line begins with #!";
  std::string needs = elf ? loader_of(path) : std::string();
  if (head.rfind("#!", 0) == 0) {
    needs = head.substr(2, head.find('\n') - 2);
    needs.erase(0, std::min(needs.find_first_not_of(" \t"), needs.size()));
    needs.resize(std::min(needs.find_first_of(" \t"), needs.size()));
  }
  if (needs.empty() || depth == kMostInterpreters) return {};
  const std::string who = fmt::format("its {} '{}'", elf ? "loader" : "interpreter", needs);
  if (needs.back() == '\r') return who + " ends in a carriage return: give the file Unix lines";
  if (runnable(needs)) {
    const std::string lack = lack_of(needs, error, depth + 1);
    return lack.empty() ? "" : who + " cannot run: " + lack;
  }
  return who + (access(needs.c_str(), F_OK) == 0 ? " is not an executable file"
                                                 : " does not exist on this host");
}

// Variables that ranks must not inherit. If mpirun or srun started ringrun, ringrun's ranks must
// not take the rank that ringrun was given. With RINGSMITH_MEETING_DIR, the ranks would meet in
// that folder instead of the store.
constexpr std::array<std::string_view, 7> kDropped{"OMPI_COMM_WORLD_",
                                                   "PMIX_",
                                                   "PMI_",
                                                   "RINGSMITH_MEETING_DIR",
                                                   "RINGSMITH_SECRET_FILE",
                                                   comm::store::kDoorVariable,
                                                   comm::store::kPerStepVariable};

bool dropped(std::string_view name) {
  return std::ranges::any_of(
      kDropped, [name](std::string_view start) { return name.substr(0, start.size()) == start; });
}

}  // namespace

Guardian::Guardian() {
  Pipe pipe;
  pid_ = fork();
  if (pid_ < 0) refuse_fork(errno);
  if (pid_ == 0) {
    setsid();  // so that the terminal's signals do not reach the guardian
    prctl(PR_SET_NAME, "ringrun-guard");
    prctl(PR_SET_PDEATHSIG, SIGCONT);  // resumes it, if it is stopped when the launcher dies
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    // The reader of the launcher's output must see end of file when the launcher ends.
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    pipe.write = Descriptor();
    guard(pipe.read.get());
  }
  pipe_ = std::move(pipe.write);
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

std::string Guardian::exit_report() {
  if (told_ || !has_ended(Deadline::in(milliseconds(0)))) return {};
  told_ = true;
  const ExitStatus end{WIFSIGNALED(status_), false,
                       WIFSIGNALED(status_) ? WTERMSIG(status_) : WEXITSTATUS(status_)};
  return "its guardian (pid " + std::to_string(pid_) + ") has ended: " + end.describe() +
         "; if ringrun is killed now, children of the ranks may survive";
}

// A stopped guardian reads nothing. SIGCONT resumes it; if it is stopped again immediately, the
// launcher relies on its own list.
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

Orphans::Orphans() : spared_(children_of(getpid())) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::set<pid_t> Orphans::end(pid_t guardian, Deadline deadline) const {
  for (;;) {
    std::set<pid_t> left = children_of(getpid());
    left.erase(guardian);
    for (const pid_t pid : spared_) left.erase(pid);
    if (left.empty() || deadline.passed()) return left;
    for (const pid_t pid : left) {
      kill(pid, SIGKILL);  // its children become ours, and the next pass finds them
      waitpid(pid, nullptr, WNOHANG);
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool group_lives(pid_t group) {
  return !processes_that([=](pid_t pid, const ProcessState& s) {
            return s.group == group && pid != group && s.letter != 'Z' && s.letter != 'X';
          }).empty();
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    require(runnable(name), "cannot run '" + name + "': it is not an executable file");
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
  if (process.pid < 0) refuse_fork(errno);
  if (process.pid == 0)
    become(launcher, path.c_str(), argv.data(), envp.data(), guardian, inherited.keep,
           out.write.get(), err.write.get(), report.write.get());
  setpgid(process.pid, process.pid);  // also in the child; the group exists whichever runs first
  guardian.watch(process.pid);
  report.write = Descriptor();
  // The pipe is readable once the program runs or exec has failed. The process may have been
  // stopped, or its file may be on a server that does not answer, so this wait has a limit.
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
    const std::string lack = lack_of(path, error);
    throw UsageError("cannot run '" + path + "': " + (lack.empty() ? std::strerror(error) : lack));
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
      {"RINGSMITH_ROUND", std::to_string(place.round)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(place.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts)},
      {"TORCHELASTIC_RUN_ID", place.job},
      {"MASTER_ADDR", store.address},
      {"MASTER_PORT", std::to_string(store.port)},
      {"RINGSMITH_STORE", "launcher"},
      {comm::kSecretVariable, store.secret},
  };
  if (!store.door.empty()) ours[comm::store::kDoorVariable] = store.door;
  if (store.per_step) ours[comm::store::kPerStepVariable] = "1";
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
