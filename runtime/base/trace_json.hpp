// Events as Chrome's Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open.
//
// One process row for each rank (pid = rank), one thread row for each thread, microseconds with
// three decimals counted from a common origin. A rank whose clock runs ahead by clock_offset_ns has
// it subtracted, so that all ranks share one time axis.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/tracer.hpp"

namespace ringsmith::trace {

struct RankTrace {
  int rank = 0;
  std::int64_t origin_ns = 0;        // time 0 of the trace, on the common clock
  std::int64_t clock_offset_ns = 0;  // this rank's clock - the common clock
  std::vector<Event> events;
  std::vector<std::string> thread_names;  // by Event::thread
};

// The events of one rank, comma-separated without brackets: what travels to rank 0.
[[nodiscard]] std::string chrome_events(const RankTrace& trace);

// The whole file from the ranks' fragments; notes become strings under "otherData".
[[nodiscard]] std::string chrome_trace(
    const std::vector<std::string>& fragments,
    const std::vector<std::pair<std::string, std::string>>& notes);

}  // namespace ringsmith::trace
