#include "runtime/job/launch/spawn.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/job/forked.hpp"
#include "runtime/job/launch/failure.hpp"

namespace ringsmith::launch {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Body = std::function<void(std::shared_ptr<comm::ProcessGroup>)>;

constexpr milliseconds kSettle{200};     // for ranks that fail because of a dead rank to report it
constexpr milliseconds kDeath{5'000};    // for SIGKILL to take effect
constexpr milliseconds kLook{500};       // poll interval: a rank's children may hold its pipe open
constexpr milliseconds kReap{2};         // poll interval between a rank's end of file and exit
constexpr std::size_t kMostText = 4096;  // bytes of an error; less than a pipe takes in one write

void require_alone() {
  const comm::JobPlace place =
      comm::find_place(comm::BootstrapKind::automatic, comm::process_environment());
  require(place.kind == comm::BootstrapKind::self,
          fmt::format("spawn: this process is a rank already (--bootstrap {}): start the program "
                      "alone, or call init_process_group() instead",
                      comm::name_of(place.kind)));
  std::error_code error;
  const auto threads =
      std::distance(fs::directory_iterator("/proc/self/task", error), fs::directory_iterator());
  require(threads <= 1,
          fmt::format("spawn: {} threads run in this process, and a fork would copy only this one: "
                      "call spawn before process groups, loaders with workers and "
                      "kernels::set_threads()",
                      threads));
  struct sigaction action {};
  sigaction(SIGCHLD, nullptr, &action);
  require(action.sa_handler != SIG_IGN && (action.sa_flags & SA_NOCLDWAIT) == 0,
          "spawn: this process ignores SIGCHLD, and so would not learn how its ranks end: call "
          "signal(SIGCHLD, SIG_DFL) first");
}

// Call before fork(), or every child would print the buffered output again, and before _exit(),
// which would lose it.
bool flush_all() {
  std::cout.flush();
  return std::fflush(nullptr) == 0;
}

[[noreturn]] void be_rank(int rank, const comm::ForkedMeeting& meeting, const Body& body,
                          const SpawnOptions& options, const Descriptor& report) {
  std::string text;
  int code = 0;
  const auto failed = [&](const std::string& what, ExitCode with) {
    text = what;
    code = static_cast<int>(with);
  };
  try {
    comm::GroupOptions mine = options.group;
    if (mine.device.is_cuda()) mine.device.index = (mine.device.index + rank) % device_count();
    const DeviceGuard guard(mine.device);
    comm::assign_bootstrap(meeting.join(rank, mine.timeout));
    body(comm::init_process_group(mine));
  } catch (const Error& e) {
    failed(e.what(), e.exit_code());
  } catch (const std::exception& e) {
    failed(e.what(), ExitCode::internal);
  } catch (...) {
    failed("the exception thrown is not a std::exception", ExitCode::internal);
  }
  if (!flush_all() && code == 0)
    failed("cannot write all of its output: " + reason_of(errno), ExitCode::internal);
  text.resize(std::min(text.size(), kMostText));
  if (write(report.get(), text.data(), text.size()) < 0) code = std::max(code, 1);
  // Not exit(), because atexit handlers and static objects belong to the parent.
  _exit(code);
}

class Children {
 public:
  Children(int ranks, const SpawnOptions& options)
      : options_(options), meeting_(ranks), world_(ranks), memory_(MemoryGroup::own()) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {  // kills the ranks that run if a later one could not start
    send(SIGKILL);
    for (const ForkedRank& rank : ranks_)
      if (rank.running) waitpid(rank.pid, nullptr, 0);
  }

  void run(const Body& body) {
    flush_all();
    for (int r = 0; r < world_; ++r) start(r, body);
    while (any_running()) {
      await_change();
      for (ForkedRank& rank : ranks_) look_at(rank);
      if (due_ && due_->passed()) on_time();
    }
    if (const auto first = root_cause(failures_); first) throw failure(*first);
    if (!late_.empty()) throw TimeoutError(late_);
  }

 private:
  struct ForkedRank {
    int number = 0;
    pid_t pid = -1;
    Descriptor report;  // read end: the rank's error as text, then end of file
    std::string text;
    bool running = true;
  };

  void start(int number, const Body& body) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("spawn: pipe", errno);
    Descriptor from(ends[0]), to(ends[1]);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0)
      throw ResourceError(fmt::format("spawn: cannot start rank {}: {}", number, reason_of(errno)));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // the parent died before the line above
      for (ForkedRank& other : ranks_) other.report = Descriptor();
      from = Descriptor();
      be_rank(number, meeting_, body, options_, to);
    }
    ranks_.push_back({number, pid, std::move(from), {}, true});
  }

  [[nodiscard]] bool any_running() const {
    return std::ranges::any_of(ranks_, [](const ForkedRank& r) { return r.running; });
  }

  void await_change() const {
    std::vector<pollfd> entries;
    milliseconds longest = kLook;
    for (const ForkedRank& rank : ranks_) {
      if (!rank.running) continue;
      entries.push_back({rank.report.get(), POLLIN, 0});
      if (!rank.report.valid()) longest = kReap;
    }
    const Deadline deadline = Deadline::in(longest);
    poll(entries.data(), entries.size(), (due_ ? due_->at_most(longest) : deadline).poll_ms());
  }

  void look_at(ForkedRank& rank) {
    if (!rank.running) return;
    read_report(rank);
    siginfo_t info{};
    const bool known = waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG) == 0;
    if (known && info.si_pid == 0) return;
    read_report(rank);
    rank.running = false;
    if (!known) rank.text = "its exit status is unknown: other code in this process waited for it";
    on_end(rank, known ? ExitStatus{info.si_code != CLD_EXITED, info.si_code == CLD_DUMPED,
                                    info.si_status}
                       : ExitStatus{false, false, static_cast<int>(ExitCode::internal)});
  }

  static void read_report(ForkedRank& rank) {
    std::array<char, kMostText> block{};
    pollfd entry{rank.report.get(), POLLIN, 0};
    while (rank.report.valid() && poll(&entry, 1, 0) > 0) {
      const ssize_t n = read(rank.report.get(), block.data(), block.size());
      if (n > 0) rank.text.append(block.data(), static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR)) rank.report = Descriptor();
    }
  }

  void on_end(ForkedRank& rank, ExitStatus end) {
    // While ranks are being terminated, their exit status does not matter.
    if (phase_ == JobPhase::ending || phase_ == JobPhase::killing) return;
    if (end.success()) {
      if (!due_) due_ = Deadline::in(options_.exit_timeout);
      return;
    }
    Failure f;
    f.rank = rank.number;
    f.pid = rank.pid;
    f.end = end;
    f.when_us = static_cast<std::int64_t>(failures_.size());  // not a time: the order of the ends
    f.tail = {rank.text};
    if (const auto blamed = blamed_in(f.tail, f.pid); blamed)
      for (const ForkedRank& other : ranks_)
        if (other.pid == blamed->pid) f.blames = other.number;
    if (end.exit_code() == 128 + SIGKILL) f.hint = memory_.why_killed();
    failures_.push_back(f);
    if (phase_ == JobPhase::running) {
      phase_ = JobPhase::settling;
      due_ = Deadline::in(kSettle);
    }
  }

  void on_time() {
    switch (phase_) {
      case JobPhase::running:
        for (const ForkedRank& rank : ranks_)
          if (rank.running)
            late_ +=
                fmt::format("{}rank {} (pid {})", late_.empty() ? "" : ", ", rank.number, rank.pid);
        late_ += fmt::format(" still ran {} s after the first rank had ended; they were ended",
                             static_cast<double>(options_.exit_timeout.count()) / 1000);
        [[fallthrough]];
      case JobPhase::settling:
        phase_ = JobPhase::ending;
        due_ = Deadline::in(options_.grace);
        send(SIGTERM);
        send(SIGCONT);  // a stopped process cannot end
        return;
      case JobPhase::ending:
        phase_ = JobPhase::killing;
        due_ = Deadline::in(kDeath);
        send(SIGKILL);
        return;
      case JobPhase::killing:
        for (ForkedRank& rank : ranks_) rank.running = false;  // stuck in the kernel: given up
    }
  }

  void send(int signal) {
    for (const ForkedRank& rank : ranks_)
      if (rank.running) kill(rank.pid, signal);
  }

  [[nodiscard]] RankFailed failure(const Failure& f) const {
    std::string text = fmt::format("rank {} of {} (pid {}) ", f.rank, world_, f.pid);
    if (f.end.signalled)
      text += "was ended by " + f.end.describe() + (f.hint.empty() ? "" : ": " + f.hint);
    else if (!f.tail[0].empty())
      text += "failed: " + f.tail[0];
    else
      text += "ended with " + f.end.describe();
    return {text, f.rank, f.end.exit_code()};
  }

  const SpawnOptions& options_;
  comm::ForkedMeeting meeting_;
  int world_;
  MemoryGroup memory_;
  std::vector<ForkedRank> ranks_;
  std::vector<Failure> failures_;
  std::string late_;
  JobPhase phase_ = JobPhase::running;
  std::optional<Deadline> due_;  // end of the current phase
};

}  // namespace

void spawn(int ranks, const Body& body, const SpawnOptions& options) {
  require(ranks > 0, fmt::format("spawn: {} ranks: start one or more", ranks));
  SpawnOptions checked = options;
  checked.group.timeout = checked_timeout("SpawnOptions::group.timeout", options.group.timeout);
  checked.exit_timeout = checked_timeout("SpawnOptions::exit_timeout", options.exit_timeout);
  checked.grace = limited(options.grace);
  require_alone();
  Children(ranks, checked).run(body);
}

}  // namespace ringsmith::launch
