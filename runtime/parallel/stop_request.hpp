// Preemption: a signal announces that the machine will soon be taken away. SIGTERM comes from
// ringrun, scancel, Kubernetes and people; SIGUSR1 from Slurm, before a job's time is up (sbatch
// --signal=USR1@60). The ranks finish their step, save, and end with exit code 75.
//
//   StopRequest stop;                      // these signals no longer end the process
//   for (...) {
//     ...                                  // a step, or an epoch; then, on rank 0: save
//     stop.throw_if_agreed(*group);        // run_main() turns it into exit code 75
//   }
//
//   rank 0   step 7   step 8 |              all ranks end after the same step, although the
//   rank 1   step 7 ^ step 8 | save, exit   signal comes to each at another moment, or only to one
//                   signal
//
// A second signal, of either kind, ends the process at once as if there were no StopRequest. A
// signal within kSameRequest of the first is the same request: a scheduler may signal both ringrun
// and the ranks, and ringrun passes on its signals. A signal that is ignored stays ignored.
#pragma once

#include <array>
#include <chrono>
#include <csignal>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith {

// All ranks have agreed to stop, and it is no error. On rank 0 with a text, for all.
class Preempted : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::preempted; }
};

class StopRequest {
 public:
  static constexpr std::array<int, 2> kSignals{SIGTERM, SIGUSR1};
  static constexpr std::chrono::milliseconds kSameRequest{300};

  // One at a time in a process: UsageError for a second one.
  StopRequest();
  ~StopRequest();  // restores the signals' previous dispositions, unless the work is done
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Has this process got a signal? The other ranks may not have, so no rank may stop for this
  // alone: for programs that exchange something in each step anyway, and send this along.
  [[nodiscard]] bool here() const noexcept;
  // Collective: has any rank got one? The same answer on all. Costs an all-reduce of one number.
  [[nodiscard]] bool agreed(comm::ProcessGroup& group) const;
  // Everything is written, and only the process has still to end: a first signal does nothing from
  // here on, so that it does not turn exit code 0 into 143.
  void work_is_done() noexcept { done_ = true; }
  // Throws Preempted if agreed() is true. Save before you call it.
  void throw_if_agreed(comm::ProcessGroup& group) const;

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
  bool done_ = false;
};

}  // namespace ringsmith
