// trace.json: the events of all ranks on one clock, gathered to rank 0 and written there, in
// Chrome's Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open.
//
// One process row for each rank (pid = rank), one thread row for each thread, microseconds with
// three decimals counted from a common origin.
//
// How far apart are two clocks? From ping-pongs, as NTP does it:
//
//   here    t0 ------.            .---> t1
//   there             '--> t ----'
//
// The remote stamp t was taken at some moment of [t0, t1], so offset = t - (t0 + t1) / 2 is right
// within (t1 - t0) / 2. The round with the shortest trip bounds it best.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "labs/apps/train/step_time.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct ClockSample {
  std::int64_t sent = 0;      // here
  std::int64_t remote = 0;    // there
  std::int64_t received = 0;  // here
};

struct ClockOffset {
  std::int64_t offset_ns = 0;       // remote clock - own clock
  std::int64_t uncertainty_ns = 0;  // half of the shortest round trip
  // True if both may be one clock: 0 lies within the uncertainty.
  [[nodiscard]] bool may_be_zero() const {
    return offset_ns <= uncertainty_ns && -offset_ns <= uncertainty_ns;
  }
};

// UsageError without samples or if one was received before it was sent.
[[nodiscard]] ClockOffset estimate_offset(const std::vector<ClockSample>& samples);

struct RankTrace {
  int rank = 0;
  std::int64_t origin_ns = 0;        // time 0 of the trace, on the common clock
  std::int64_t clock_offset_ns = 0;  // this rank's clock - the common clock; is subtracted
  std::vector<trace::Event> events;
  std::vector<std::string> thread_names;  // by Event::thread
};

// The events of one rank, comma-separated without brackets: what travels to rank 0.
[[nodiscard]] std::string chrome_events(const RankTrace& trace);

// The whole file from the ranks' fragments; notes become strings under "otherData".
[[nodiscard]] std::string chrome_trace(
    const std::vector<std::string>& fragments,
    const std::vector<std::pair<std::string, std::string>>& notes);

// Collective. Writes path on rank 0; UsageError or Error there if it cannot be written, QuietStop
// on the others.
void write_trace(comm::ProcessGroup& group, const StepClock& clock, const std::string& path);

}  // namespace ringsmith::apps
