// A moment by which something must have happened. Made once from a timeout and handed down, so that
// ten waits in a row share one limit instead of having ten.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {

// The value of an unlimited timeout: milliseconds::max() would overflow in the clock's nanoseconds,
// and in every sum. Two of these and the time since the machine's start fit.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(100 * 365 * 24);

[[nodiscard]] inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout) {
  return std::clamp(timeout, -kLongestTimeout, kLongestTimeout);
}

// For timeouts that a program gives, once, where they come in. UsageError unless it is above 0.
[[nodiscard]] inline std::chrono::milliseconds checked_timeout(const std::string& what,
                                                               std::chrono::milliseconds timeout) {
  require(timeout.count() > 0, what + " must be above 0, got " + std::to_string(timeout.count()) +
                                   " ms; milliseconds::max() waits without a limit");
  return limited(timeout);
}

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline in(std::chrono::milliseconds timeout) {
    return Deadline(Clock::now() + limited(timeout));
  }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  [[nodiscard]] Clock::time_point at() const { return at_; }
  [[nodiscard]] bool passed() const { return Clock::now() >= at_; }
  // Rounded up, so that sleeping for it does not end a fraction of a millisecond early; never < 0.
  [[nodiscard]] std::chrono::milliseconds left() const {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()),
                    std::chrono::milliseconds(0));
  }
  // For poll(): an hour at most, which then looks again.
  [[nodiscard]] int poll_ms() const {
    return static_cast<int>(std::min<std::chrono::milliseconds>(left(), kHour).count());
  }
  [[nodiscard]] Deadline at_most(std::chrono::milliseconds timeout) const {
    return Deadline(std::min(at_, in(timeout).at_));
  }

 private:
  static constexpr std::chrono::hours kHour{1};
  Clock::time_point at_;
};

}  // namespace ringsmith
