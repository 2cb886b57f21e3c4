// A point in time by which an operation must complete. It is created once from a timeout and passed
// down, so that consecutive waits share one limit.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {

// Replaces an unlimited timeout, because milliseconds::max() would overflow in the clock's
// nanoseconds and in sums. Twice this value plus the uptime does not overflow.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(100 * 365 * 24);

[[nodiscard]] inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout) {
  return std::clamp(timeout, -kLongestTimeout, kLongestTimeout);
}

// Throws UsageError unless the timeout is above 0.
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
  // Returns the time left: never negative, and rounded up, so that a sleep does not end too early.
  [[nodiscard]] std::chrono::milliseconds left() const {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()),
                    std::chrono::milliseconds(0));
  }
  // Returns the timeout for poll(), at most an hour. So the caller must poll again until the
  // deadline has passed.
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
