// Stops all ranks of a job together, so that no rank waits in a collective for a rank that has
// found a bad file, and an error that all ranks see is printed only once. A bad loss is handled the
// same way:
//
//   rank 0: 2.31 --.
//   rank 1: 2.29 ---+--> all_gather --> every rank has all losses, computes the mean in rank order
//   rank 2: nan  --'                    and sees that rank 2 has NaN
//
// A mean alone (an all-reduce) would not reveal which rank has NaN. On the CPU, the exchange starts
// before backward and is awaited after it, so the two overlap.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// Ends the program silently with the exit code of the rank that reports the error. unsaid: this
// rank's own error, printed only if no launcher terminates this rank first.
class QuietStop : public Error {
 public:
  explicit QuietStop(ExitCode code, std::string unsaid = {})
      : Error("stopped by another rank"), code_(code), unsaid_(std::move(unsaid)) {}
  [[nodiscard]] ExitCode exit_code() const noexcept override { return code_; }
  [[nodiscard]] const std::string& unsaid() const { return unsaid_; }

 private:
  ExitCode code_;
  std::string unsaid_;
};

// Collective. Runs body on every rank. If body throws an Error on some ranks, the lowest such rank
// rethrows it, and all other ranks throw QuietStop. A CommError is rethrown immediately, because
// the ranks can no longer agree through the group.
void together(comm::ProcessGroup& group, const std::function<void()>& body);

// Ranks as threads: rethrows one of their errors, and returns if all entries are null. Prefers a
// cause to its consequences on the other ranks (PeerLost, Aborted, QuietStop).
void rethrow_cause(const std::vector<std::exception_ptr>& errors);

// Like run_main() in runtime/base/error.hpp, but also handles QuietStop.
int run_program(const char* name, const std::function<int()>& body);

class LossExchange {
 public:
  explicit LossExchange(comm::ProcessGroup& group);
  ~LossExchange();  // waits for the exchange in flight, which writes into this object
  LossExchange(const LossExchange&) = delete;
  LossExchange& operator=(const LossExchange&) = delete;

  // preempt: save a checkpoint and exit (StopRequest). stop: exit now, because of an error on this
  // rank.
  enum class Wish : std::uint8_t { none, preempt, stop };
  void begin(double loss, Wish wish = Wish::none);
  // Returns the mean over the ranks. If any loss is not finite, every rank throws: rank 0 an Error
  // that names the step and the rank, the others QuietStop.
  double finish(std::int64_t step);
  // The strongest wish of any rank in the last exchange.
  [[nodiscard]] Wish wish() const { return wish_; }

 private:
  comm::ProcessGroup& group_;
  std::vector<double> mine_, all_;  // loss and wish, of this rank and of all ranks
  Wish wish_ = Wish::none;
  comm::WorkPtr work_;
};

// Collective. Return the vectors of all ranks in rank order, and their element-wise sum. All
// vectors must have the same length. Meant for the few numbers of a report, not for code that is
// timed.
[[nodiscard]] std::vector<std::vector<double>> gather_rows(comm::ProcessGroup& group,
                                                           const std::vector<double>& values);
[[nodiscard]] std::vector<double> sum_over_ranks(comm::ProcessGroup& group,
                                                 const std::vector<double>& values);
// Returns the median (for an even count, the mean of the middle two), or 0 if there are no values.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace ringsmith::apps
