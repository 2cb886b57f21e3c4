#include "runtime/job/launch/supervisor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/job/launch/output.hpp"

namespace ringsmith::launch {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNodesSettle{200};
constexpr int kMostVainLives = 5;         // in a row; after these, no restart
constexpr milliseconds kSameSignal{300};  // two signals within it count as one: `timeout` sends two
constexpr milliseconds kLastOutput{1'000};   // for streams held open by a stray process
constexpr milliseconds kOtherNodes{10'000};  // for their reports, in addition to the grace period
constexpr milliseconds kNodesLook{200};      // poll interval for arriving nodes
constexpr milliseconds kGroupLook{20};       // poll interval for processes that a leader left

// Leaves out signals that were ignored when ringrun started: while they are blocked, the kernel
// would queue even ignored signals.
sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals)
    if (!is_ignored(signal)) sigaddset(&set, signal);
  return set;
}

Descriptor block(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  Descriptor descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor.valid()) throw_errno("signalfd", errno);
  return descriptor;
}

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, const Round& round, const Signals& signals,
             Guardian& guardian, Nodes& nodes, Rendezvous& rendezvous)
      : options_(options),
        round_(round),
        guardian_(guardian),
        nodes_(nodes),
        rendezvous_(rendezvous),
        signals_(signals),
        closed_(eventfd(0, EFD_CLOEXEC)),
        output_({options.log_folder, options.log_folder.empty() || options.tee, options.prefix,
                 options.per_step},
                closed_.get()) {
    if (!closed_.valid()) throw_errno("eventfd", errno);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  [[nodiscard]] RoundEnd run(const std::string& program) {
    look_after_guardian();
    start(program);
    // A rank of another node may be the cause, so the ranks here get the full time to notice its
    // death.
    const auto undecided = [this] {
      return (phase_ == JobPhase::running && !verdict_seen_) ||
             (phase_ == JobPhase::settling && options_.nodes > 1);
    };
    while (any_running() || undecided()) {
      if (!any_running() && phase_ == JobPhase::running && !said_done_) {
        said_done_ = true;
        nodes_.say_done();
        due_ = Deadline::in(options_.exit_timeout);
      }
      std::array<pollfd, 4> entries{{{signals_.all.get(), POLLIN, 0},
                                     {verdict_seen_ ? -1 : nodes_.verdict_ready(), POLLIN, 0},
                                     {closed_.get(), POLLIN, 0},
                                     {nodes_.silent_ranks(), POLLIN, 0}}};
      const bool looks = rendezvous_.has_room() && phase_ == JobPhase::running && !said_done_;
      const int forever = looks ? static_cast<int>(kNodesLook.count()) : -1;
      poll(entries.data(), entries.size(),
           !due_        ? forever
           : lingering_ ? due_->at_most(kGroupLook).poll_ms()
                        : due_->poll_ms());
      if (lingering_) reap();
      if (looks) look_for_newcomers();
      if (entries[0].revents != 0) handle_signals();
      if (entries[1].revents != 0) on_verdict();
      if (entries[2].revents != 0 && phase_ == JobPhase::running) {
        eventfd_t unused = 0;
        eventfd_read(closed_.get(), &unused);
        signal_ = SIGPIPE;
        nodes_.say_over("the output of ringrun on " + here_ + " is no longer read");
        begin_ending(SIGTERM, options_.failure_grace);
      }
      if (entries[3].revents != 0) end_silent_ranks();
      if (due_ && due_->passed()) on_time();
    }
    if (!failures_.empty()) nodes_.say_over("a rank of " + here_ + " failed");
    await_output();
    return report();
  }

 private:
  using Clock = Deadline::Clock;
  struct RankProcess {
    RankPlace place;
    pid_t pid = -1;
    bool running = true;
    bool ended_by_us = false;
    ExitStatus end;
    Clock::time_point started{};
    std::int64_t counted = 0;  // counted steps that included it before this start
    int vain_lives = 0;        // lives in a row without a counted step
  };

  void start(const std::string& program) {
    program_ = program;
    for (char** variable = environ; *variable != nullptr; ++variable)
      inherited_.emplace_back(*variable);
    started_ = Clock::now();
    memory_ = MemoryGroup::own();
    try {
      for (int i = 0; i < options_.ranks_here; ++i) {
        RankProcess rank;
        rank.place = nodes_.place_of(i);
        rank.place.round = round_.number;
        rank.place.restarts = round_.restarts;
        rank.place.max_restarts = options_.max_restarts;
        rank.place.job = options_.job;
        ranks_.push_back(rank);
        start(ranks_.back());
      }
    } catch (...) {
      send(SIGKILL);  // immediately, because the other nodes and the store would wait for them
      throw;
    }
    output_.start();
  }

  void start(RankProcess& rank) {
    rank.running = false;
    Process process = start_process(program_, options_.command,
                                    rank_environment(inherited_, rank.place, nodes_.store()),
                                    guardian_, {nodes_.door(), signals_.ending.get()});
    rank.pid = process.pid;
    rank.running = true;
    rank.started = Clock::now();
    rank.counted = nodes_.counted_steps(rank.place.rank);
    output_.add(rank.place.rank, std::move(process.out), std::move(process.err));
  }

  void handle_signals() {
    signalfd_siginfo info{};
    while (read(signals_.all.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap();
      } else if (signal == SIGUSR1 || signal == SIGUSR2) {
        send(signal);
      } else if (signal == SIGTSTP) {
        send(SIGSTOP);
        raise(SIGSTOP);
        send(SIGCONT);
      } else if (phase_ == JobPhase::running || phase_ == JobPhase::settling || !asked()) {
        signal_ = signal;
        nodes_.say_over("ringrun on " + here_ + " got " + signal_name(signal),
                        Verdict::Kind::stopped);
        if (phase_ != JobPhase::killing) begin_ending(signal, options_.grace);
      } else if (signal_ == 0) {
        signal_ = signal;  // the ranks are already ending at another node's request
      } else if (phase_ == JobPhase::ending && Clock::now() - ending_since_ > kSameSignal) {
        due_ = Deadline::in(milliseconds(0));  // ends the grace period
      }
    }
  }

  void look_for_newcomers() {
    if (const std::string who = rendezvous_.newcomer(); !who.empty())
      nodes_.say_over(who, Verdict::Kind::joined);
  }

  void look_after_guardian() {
    if (const std::string how = guardian_.exit_report(); !how.empty()) say(how);
  }

  void reap() {
    look_after_guardian();
    lingering_ = false;
    for (RankProcess& rank : ranks_) {
      siginfo_t info{};
      if (!rank.running ||
          waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == 0)
        continue;
      // A shell dies of the signal immediately, while the program that it started may still be
      // saving.
      if (phase_ == JobPhase::ending && asked() && info.si_code == CLD_KILLED &&
          info.si_status == SIGTERM && group_lives(rank.pid)) {
        lingering_ = true;
        continue;
      }
      // While the leader is a zombie its pid cannot be reused, so the rest of its group can be
      // killed safely.
      kill(-rank.pid, SIGKILL);
      guardian_.forget(rank.pid);
      waitpid(rank.pid, nullptr, 0);
      rank_ended(rank, {info.si_code != CLD_EXITED, info.si_code == CLD_DUMPED, info.si_status});
    }
  }

  void rank_ended(RankProcess& rank, ExitStatus end) {
    rank.running = false;
    rank.end = end;
    rank.ended_by_us = phase_ == JobPhase::ending || phase_ == JobPhase::killing;
    if (rank.ended_by_us) return;
    if (end.success() || end.preempted()) {
      nodes_.say_rank_ended(rank.place.rank, end.describe());
      return;
    }
    // Once the training is over, the loss of a rank is no failure.
    if (options_.per_step && is_lost(rank) && (nodes_.training_over() || start_again(rank))) return;
    failures_.emplace_back(&rank - ranks_.data(), failure_of(rank));
    if (phase_ == JobPhase::running) settle();
  }

  // True if a signal killed the rank, or if it gave up because of its device, its peers or a limit.
  // A program that gives up for any other reason would do so again.
  [[nodiscard]] bool is_lost(const RankProcess& rank) const {
    constexpr std::array<ExitCode, 4> kLost{ExitCode::cuda, ExitCode::communication,
                                            ExitCode::timeout, ExitCode::resources};
    return phase_ == JobPhase::running && !nodes_.training_failed() &&
           (rank.end.signalled || std::ranges::any_of(kLost, [&](ExitCode code) {
              return rank.end.code == static_cast<int>(code);
            }));
  }

  // With per_step: restarts this rank alone, while the others continue.
  [[nodiscard]] bool start_again(RankProcess& rank) {
    const auto lived = Clock::now() - rank.started;
    const std::string how =
        fmt::format("rank {} (pid {}) is lost after {:.1f} s: {}", rank.place.rank, rank.pid,
                    std::chrono::duration<double>(lived).count(), rank.end.describe());
    const bool in_vain = nodes_.counted_steps(rank.place.rank) == rank.counted;
    rank.vain_lives = in_vain ? rank.vain_lives + 1 : 0;
    if (rank.vain_lives == kMostVainLives) {
      say(fmt::format("{}; it was lost {} times in a row without completing a step", how,
                      kMostVainLives));
      return false;
    }
    try {
      start(rank);
    } catch (const Error& e) {
      say(how + "; it cannot be started again: " + e.what());
      return false;
    }
    say(fmt::format("{}; started again as pid {}", how, rank.pid));
    return true;
  }

  void end_silent_ranks() {
    for (int number = 0; read(nodes_.silent_ranks(), &number, sizeof number) == sizeof number;)
      for (const RankProcess& rank : ranks_)
        // A rank that was started after the report is a new process.
        if (rank.place.rank == number && rank.running &&
            Clock::now() - rank.started >= options_.quorum_timeout) {
          say(fmt::format("rank {} (pid {}) has been silent for {} s and is killed", number,
                          rank.pid, options_.quorum_timeout.count() / 1000));
          kill(-rank.pid, SIGKILL);
        }
  }

  void on_verdict() {
    verdict_seen_ = true;
    const Verdict& verdict = nodes_.verdict();
    if (verdict.kind == Verdict::Kind::ok || phase_ != JobPhase::running) return;
    settle();  // a rank that fails here now may be the cause that other nodes noticed
  }

  void on_time() {
    switch (phase_) {
      case JobPhase::running:  // the ranks here have ended, but ranks of other nodes have not
        nodes_.say_over(fmt::format("{} still ran {} s after the ranks of node {} had ended",
                                    nodes_.still_running(), options_.exit_timeout.count() / 1000,
                                    options_.node));
        due_.reset();
        return;
      case JobPhase::settling:
        if (!failures_.empty()) nodes_.say_over("a rank of " + here_ + " failed");
        begin_ending(SIGTERM, asked() ? options_.grace : options_.failure_grace);
        return;
      case JobPhase::ending:
        if (asked()) say_who_is_killed();
        send(SIGKILL);
        phase_ = JobPhase::killing;
        due_ = Deadline::in(kDeath);
        return;
      case JobPhase::killing:
        for (RankProcess& rank : ranks_) {
          if (!rank.running) continue;
          say(fmt::format("rank {} (pid {}) survives SIGKILL: it hangs in the kernel",
                          rank.place.rank, rank.pid));
          rank.running = false;
          rank.ended_by_us = true;
        }
        return;
    }
  }

  void settle() {
    phase_ = JobPhase::settling;
    due_ = Deadline::in(kNodesSettle);
  }

  void begin_ending(int signal, milliseconds grace) {
    phase_ = JobPhase::ending;
    ending_since_ = Clock::now();
    grace_ = grace;
    due_ = Deadline::in(grace);
    send(signal);
    send(SIGCONT);  // a stopped process cannot end
  }

  // True if the ranks end by request, not because a rank failed. In that case, they may save their
  // state.
  [[nodiscard]] bool asked() const {
    using Kind = Verdict::Kind;
    return (signal_ != 0 && signal_ != SIGPIPE) ||
           (verdict_seen_ &&
            (nodes_.verdict().kind == Kind::stopped || nodes_.verdict().kind == Kind::joined));
  }

  void say_who_is_killed() const {
    std::string who;
    for (const RankProcess& rank : ranks_)
      if (rank.running)
        who +=
            fmt::format("{}{} (pid {})", who.empty() ? "rank " : ", ", rank.place.rank, rank.pid);
    say(
        fmt::format("killed {:.1f} s after the signal, still at work: {}; a longer --grace lets "
                    "ranks save",
                    std::chrono::duration<double>(Clock::now() - ending_since_).count(), who));
  }

  void send(int signal) {
    for (const RankProcess& rank : ranks_)
      if (rank.running) kill(-rank.pid, signal);
  }

  [[nodiscard]] bool any_running() const {
    return std::ranges::any_of(ranks_, [](const RankProcess& r) { return r.running; });
  }

  [[nodiscard]] Failure failure_of(const RankProcess& rank) {
    using std::chrono::duration_cast;
    using std::chrono::microseconds;
    Failure f;
    f.rank = rank.place.rank;
    f.local_rank = rank.place.local_rank;
    f.node = options_.node;
    f.host = host_name();
    f.pid = rank.pid;
    f.end = rank.end;
    f.when_us =
        duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    f.after_us = duration_cast<microseconds>(Clock::now() - started_).count();
    if (rank.end.exit_code() == 128 + SIGKILL) f.hint = memory_.why_killed();
    return f;
  }

  [[nodiscard]] int blamed_by(const Failure& failure) const {
    const auto blamed = blamed_in(failure.tail, failure.pid);
    if (!blamed) return -1;
    for (const RankProcess& rank : ranks_)
      if (blamed->host == failure.host && blamed->pid == rank.pid) return rank.place.rank;
    // The rank is on another node. blamed->rank is its number in the job, or -1 if the message is
    // about a subgroup.
    return blamed->rank < nodes_.place_of(0).world ? blamed->rank : -1;
  }

  // A terminal may be slow, so a signal can still terminate ringrun.
  void await_output() {
    output_.stop_at(Deadline::in(kLastOutput));
    for (;;) {
      std::array<pollfd, 2> entries{{{output_.done(), POLLIN, 0}, {signals_.all.get(), POLLIN, 0}}};
      poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) return;
      signalfd_siginfo info{};
      if (read(signals_.all.get(), &info, sizeof info) != sizeof info) continue;
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT)
        _exit(128 + signal);
    }
  }

  [[nodiscard]] RoundEnd report() {
    using How = Rendezvous::Outcome;
    std::vector<Failure> failures;
    for (auto& [index, failure] : failures_) {
      failure.tail = output_.tail(failure.rank);
      failure.log = output_.log_of(failure.rank);
      failure.blames = blamed_by(failure);
      failures.push_back(failure);
    }
    const Verdict::Kind verdict = nodes_.verdict().kind;
    const auto has_saved = [](const RankProcess& r) { return r.end.preempted(); };
    // With per_step, one rank is enough: a rank that was just restarted may have nothing to save.
    const bool saved = options_.per_step ? std::ranges::any_of(ranks_, has_saved)
                                         : std::ranges::all_of(ranks_, has_saved);
    constexpr int kPreempted = static_cast<int>(ExitCode::preempted);
    if (phase_ == JobPhase::running && verdict_seen_ && verdict == Verdict::Kind::ok) {
      if (saved) say("the ranks were asked to stop, and have saved");
      const int code = output_.lost() ? static_cast<int>(ExitCode::internal) : 0;
      return {saved ? kPreempted : code, saved ? How::stopped : How::well};
    }
    const auto first = root_cause(nodes_.share_failures(failures, grace_ + kOtherNodes));
    if (first && signal_ == 0) {
      std::string others;
      for (const RankProcess& rank : ranks_)
        if (rank.place.rank != first->rank)
          others += fmt::format("{}rank {}: {}", others.empty() ? "" : "; ", rank.place.rank,
                                rank.ended_by_us ? "ended by ringrun" : rank.end.describe());
      say(describe(*first, options_.nodes) +
          (others.empty() ? "" : "\n  the others here: " + others));
      return {first->end.exit_code(), How::failed};
    }
    if (signal_ != 0) {
      if (signal_ != SIGPIPE)
        say("got " + signal_name(signal_) +
            (saved ? "; the ranks have saved, and ended" : ", and ended all ranks"));
      return {saved ? kPreempted : 128 + signal_, How::stopped};
    }
    say("all ranks ended: " + nodes_.verdict().text);
    if (verdict == Verdict::Kind::joined) return {0, How::joined};
    if (saved) return {kPreempted, How::failed};
    return {static_cast<int>(verdict == Verdict::Kind::lost ? ExitCode::communication
                                                            : ExitCode::internal),
            How::failed};
  }

  const LaunchOptions& options_;
  const std::string here_ = "node " + std::to_string(options_.node);
  const Round& round_;
  Guardian& guardian_;
  Nodes& nodes_;
  Rendezvous& rendezvous_;
  const Signals& signals_;
  Descriptor closed_;  // eventfd: the output cannot be written
  Output output_;
  std::string program_;
  std::vector<std::string> inherited_;  // environment variables
  std::vector<RankProcess> ranks_;
  std::vector<std::pair<std::size_t, Failure>> failures_;  // index in ranks_
  Clock::time_point started_{};
  MemoryGroup memory_;
  JobPhase phase_ = JobPhase::running;
  std::optional<Deadline> due_;  // end of the current phase
  Clock::time_point ending_since_{};
  bool lingering_ = false;  // a rank's leader has ended, but not its whole group
  milliseconds grace_ = options_.failure_grace;  // grace period that the ranks were given
  bool verdict_seen_ = false, said_done_ = false;
  int signal_ = 0;  // received by ringrun, or SIGPIPE if its output is not read; 0: none
};

}  // namespace

Signals::Signals()
    : all(block({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})),
      ending(block({SIGTERM, SIGINT, SIGHUP, SIGQUIT})) {
  const sigset_t pipe = set_of({SIGPIPE});  // not ignored, because the ranks would inherit that
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

Signals::~Signals() {
  const sigset_t set = set_of({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP});
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void say(const std::string& text) { fmt::print(stderr, "ringrun: {}\n", text); }

RoundEnd supervise(const LaunchOptions& options, const Round& round, const std::string& program,
                   const Signals& signals, Guardian& guardian, Nodes& nodes,
                   Rendezvous& rendezvous) {
  return Supervisor(options, round, signals, guardian, nodes, rendezvous).run(program);
}

}  // namespace ringsmith::launch
