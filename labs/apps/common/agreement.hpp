// Stopping together. When one rank finds a bad file, the others must not wait for it in a
// collective until a deadline, and a mistake that all ranks see must not be printed by each. So too
// a bad loss:
//
//   rank 0: 2.31 --.
//   rank 1: 2.29 ---+--> all_gather --> every rank holds all, takes the mean in rank order
//   rank 2: nan  --'                    and sees that rank 2 has NaN
//
// A mean alone (an all-reduce) would only say that some rank has NaN. The exchange starts before
// backward and is awaited after it, so it costs no time of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// "Another rank says why": leaves the program with that rank's exit code, without a word. unsaid:
// this rank's own error, which it says unless a launcher ends it first, because another rank did.
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

// Collective. Runs body on every rank; if it throws an Error anywhere, the lowest such rank throws
// it on and all others throw QuietStop.
void together(comm::ProcessGroup& group, const std::function<void()>& body);

// The whole of main(): run_main() of runtime/base/error.hpp, which also understands QuietStop.
int run_program(const char* name, const std::function<int()>& body);

class LossExchange {
 public:
  explicit LossExchange(comm::ProcessGroup& group);
  ~LossExchange();  // waits for an exchange in flight: it writes into this object
  LossExchange(const LossExchange&) = delete;
  LossExchange& operator=(const LossExchange&) = delete;

  // This rank's wish for all ranks: to end now, because of an error here; to save first
  // (StopRequest).
  enum class Wish : std::uint8_t { none, preempt, stop };
  void begin(double loss, Wish wish = Wish::none);
  // The mean over the ranks. If any loss is not finite, every rank throws: rank 0 an Error that
  // names the step and the rank, the others QuietStop.
  double finish(std::int64_t step);
  [[nodiscard]] Wish wish() const { return wish_; }  // the strongest of all ranks' last ones

 private:
  comm::ProcessGroup& group_;
  std::vector<double> mine_, all_;  // loss and wish, of each rank
  Wish wish_ = Wish::none;
  comm::WorkPtr work_;
};

// Equally long vectors of all ranks, in rank order, and their sum: small numbers for reports, off
// the clock.
[[nodiscard]] std::vector<std::vector<double>> gather_rows(comm::ProcessGroup& group,
                                                           const std::vector<double>& values);
[[nodiscard]] std::vector<double> sum_over_ranks(comm::ProcessGroup& group,
                                                 const std::vector<double>& values);
// Of one rank's: the mean of the two in the middle if their number is even, 0 without any.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace ringsmith::apps
