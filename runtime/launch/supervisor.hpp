// The launcher's watch over its ranks, from their start to the report.
//
//                 a rank fails,
//               a node's verdict
//     running ------------------> settling --0.2 s--> ending --grace--> killing --> over
//        |                                              ^
//        +---------- a signal to ringrun ---------------+
//
// Settling: when one rank dies, those that talk to it fail too, within milliseconds; they get that
// long to say why, and to be told apart from the one that was first. Ending: SIGTERM (or the signal
// that ringrun got) to every rank's process group. Killing: SIGKILL.
#pragma once

#include <optional>

#include "runtime/launch/guardian.hpp"
#include "runtime/launch/memory_group.hpp"
#include "runtime/launch/nodes.hpp"
#include "runtime/launch/output.hpp"

namespace ringsmith::launch {

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, Guardian& guardian, Nodes& nodes);

  // Starts the ranks here and waits for the end of the job. The exit code: 0 if all ranks of all
  // nodes ended well; else that of the rank that failed first (128 + signal), 128 + signal if a
  // signal to ringrun ended the job, 3 if another node's launcher is lost.
  [[nodiscard]] int run(const std::string& program);

 private:
  using Clock = Deadline::Clock;
  enum class Phase { running, settling, ending, killing };
  struct Rank {
    RankPlace place;
    pid_t pid = -1;
    bool running = true;
    bool ended_by_us = false;
    End end;
  };

  void start(const std::string& program);
  void handle_signals();
  void look_after_guardian();
  void reap();
  void rank_ended(Rank& rank, End end);
  void on_verdict();
  void on_time();
  void settle();
  void begin_ending(int signal);
  void send(int signal);
  [[nodiscard]] bool any_running() const;
  [[nodiscard]] Failure failure_of(const Rank& rank);
  void await_output();
  [[nodiscard]] int report();

  const LaunchOptions& options_;
  Guardian& guardian_;
  Nodes& nodes_;
  Descriptor signals_;  // signalfd
  Descriptor hurry_;    // signalfd, only looked at: a signal that ends us is waiting
  Descriptor closed_;   // eventfd: nobody reads our output
  Output output_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<std::size_t, Failure>> failures_;  // index in ranks_
  Clock::time_point started_{};
  MemoryGroup memory_;
  Phase phase_ = Phase::running;
  std::optional<Deadline> due_;  // of the phase
  bool verdict_seen_ = false, said_done_ = false;
  int signal_ = 0;  // that ringrun was sent
};

}  // namespace ringsmith::launch
