// trace.json: the events of all ranks on one clock, gathered and written by rank 0 in Chrome's
// Trace Event Format, for https://ui.perfetto.dev and chrome://tracing.
//
// One process row per rank (pid = rank), one thread row per thread; times are microseconds since a
// common origin, with three decimals.
//
// The offset between two clocks comes from ping-pongs, as in NTP:
//
//   here    t0 ------.            .---> t1
//   there             '--> t ----'
//
// The remote stamp t was taken at some moment in [t0, t1], so offset = t - (t0 + t1) / 2 is correct
// to within (t1 - t0) / 2. The shortest round trip gives the best bound.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "labs/apps/train/step_time.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct ClockSample {
  std::int64_t sent = 0;      // local clock
  std::int64_t remote = 0;    // remote clock
  std::int64_t received = 0;  // local clock
};

struct ClockOffset {
  std::int64_t offset_ns = 0;       // remote clock - own clock
  std::int64_t uncertainty_ns = 0;  // half of the shortest round trip
  [[nodiscard]] bool may_be_zero() const {
    return offset_ns <= uncertainty_ns && -offset_ns <= uncertainty_ns;
  }
};

// Throws UsageError if there are no samples or one was received before it was sent.
[[nodiscard]] ClockOffset estimate_offset(const std::vector<ClockSample>& samples);

struct RankTrace {
  int rank = 0;
  std::int64_t origin_ns = 0;  // time 0 of the trace, on the common clock
  // This rank's clock minus the common clock. Subtracted from the times of events.
  std::int64_t clock_offset_ns = 0;
  std::vector<trace::FinishedSpan> events;
  std::vector<std::string> thread_names;  // by FinishedSpan::thread
};

// The events of one rank, comma-separated without brackets.
[[nodiscard]] std::string chrome_events(const RankTrace& trace);

[[nodiscard]] std::string chrome_trace(
    const std::vector<std::string>& fragments,
    const std::vector<std::pair<std::string, std::string>>& notes);

// Collective. Writes the file on rank 0. If that fails, throws UsageError or Error there and
// QuietStop on the others.
void write_trace(comm::ProcessGroup& group, const StepClock& clock, const std::string& path);

}  // namespace ringsmith::apps
