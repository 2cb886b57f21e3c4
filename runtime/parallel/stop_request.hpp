// Preemption: a signal announces that the machine will soon be taken away. ringrun, scancel,
// Kubernetes and users send SIGTERM; Slurm sends SIGUSR1 before a job's time limit (sbatch
// --signal=USR1@60). The ranks finish their step, save, and exit with code 75.
//
//   StopRequest stop;                      // these signals no longer end the process
//   for (...) {
//     ...                                  // a step, or an epoch; then, on rank 0: save
//     stop.throw_if_agreed(*group);        // run_main() turns it into exit code 75
//   }
//
//   rank 0   step 7   step 8 |              all ranks end after the same step, although the
//   rank 1   step 7 ^ step 8 | save, exit   signal reaches each at a different time, or only one
//                   signal
//
// A second signal, of either kind, terminates the process immediately, as without a StopRequest. A
// signal within kSameRequest of the first belongs to the same request, because a scheduler may
// signal both ringrun and the ranks, and ringrun forwards its signals. An ignored signal stays
// ignored.
#pragma once

#include <array>
#include <chrono>
#include <csignal>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith {

// Thrown when all ranks have agreed to stop, which is not a failure. Only rank 0's message has
// text.
class Preempted : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::preempted; }
};

class StopRequest {
 public:
  static constexpr std::array<int, 2> kSignals{SIGTERM, SIGUSR1};
  static constexpr std::chrono::milliseconds kSameRequest{300};

  // Throws UsageError if this process already has a StopRequest.
  StopRequest();
  ~StopRequest();  // restores the previous signal handlers, unless work_is_done() was called
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // True if this process got a signal. Other ranks may not have got one, so a rank must not stop
  // because of this alone. For programs that exchange data in each step anyway.
  [[nodiscard]] bool here() const noexcept;
  // Collective (an all-reduce of one value). True on all ranks if any rank got a signal.
  [[nodiscard]] bool agreed(comm::ProcessGroup& group) const;
  // Call when everything is written and the process is about to exit. From then on, a signal cannot
  // turn exit code 0 into 143.
  void work_is_done() noexcept { done_ = true; }
  // Collective. Throws Preempted on all ranks if any rank got a signal, so save before you call it.
  void throw_if_agreed(comm::ProcessGroup& group) const;

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
  bool done_ = false;
};

}  // namespace ringsmith
