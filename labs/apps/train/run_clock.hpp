// The clock of a training run: the parts of each step, the last steps, and the total time.
//
// A GPU runs asynchronously. While spans are recorded, events mark the parts in the device's
// stream, and the host waits only for the last event, at the end of the step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "labs/apps/train/step_time.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::apps {

class RunClock {
 public:
  explicit RunClock(bool tracing) : steps_(tracing) {}

  void start(Device device);  // of the model
  void begin_step();
  void begin_part();
  void end_part(const char* name, trace::Category category);
  // If events have marked parts, waits for the device and records these parts on the host's clock.
  void settle_parts();
  // Ends the step, whose parts must be settled, and returns its times.
  StepTime end_step(std::int64_t step);
  void leave_out(std::int64_t ns);

  [[nodiscard]] const StepClock& step_clock() const { return steps_; }
  [[nodiscard]] StepClock& step_clock() { return steps_; }
  // Nanoseconds from start() to the end of the last step, and between the ends of the last two
  // steps; both without the times given to leave_out().
  [[nodiscard]] std::int64_t elapsed() const { return end_ns_ - begin_ns_; }
  [[nodiscard]] std::int64_t period() const { return period_ns_; }
  // Sum over the last steps, at most kRecent, and their number.
  [[nodiscard]] StepTime recent() const;
  [[nodiscard]] std::int64_t recent_steps() const;

 private:
  StepClock steps_;
  Device device_;
  std::int64_t begin_ns_ = 0, end_ns_ = 0;  // of training; of the last step
  std::int64_t period_ns_ = 0;
  std::int64_t part_ns_ = 0;  // start of the current part
  Event part_event_;          // the same, on a device
  struct Part {
    const char* name;
    trace::Category category;
    Event begin, end;
  };
  std::vector<Part> parts_;  // of the current step, on a device
  static constexpr std::int64_t kRecent = 20;
  std::array<StepTime, kRecent> recent_;
};

}  // namespace ringsmith::apps
