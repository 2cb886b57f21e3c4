// One run of a schedule as JSON, for pages and programs that draw it: every message, what each
// chunk held after it, where ranks are stuck, what the checker says, and the simulator's times.
//
// A schedule with a mistake in it runs as far as it goes; that is the point.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/analysis/checker.hpp"
#include "runtime/comm/analysis/interpreter.hpp"
#include "runtime/comm/analysis/simulator.hpp"

namespace ringsmith::apps {

// What happens in one run, in an order in which it could happen.
struct Happening {
  enum class Kind : std::uint8_t { posted, received };
  Kind kind = Kind::posted;
  int rank = 0, step = 0;
  int sender = 0, sender_step = 0;   // received only
  std::vector<comm::Value> written;  // received only: the chunks of its message, as they then are
};

struct Recording {
  int slots = 0;
  std::vector<Happening> happenings;
  std::vector<comm::Blocked> blocked;  // empty: every rank has finished

  [[nodiscard]] std::size_t steps_done(const comm::Schedule& schedule) const;
};

// Runs it with so many slots a connection; 0 is rendezvous.
[[nodiscard]] Recording record_run(const comm::Schedule& schedule, int slots);

// In one line. simulation: null where it cannot be priced.
[[nodiscard]] std::string as_json(const comm::Schedule& schedule, const Recording& recording,
                                  const std::vector<comm::Finding>& findings,
                                  const comm::Simulation* simulation);

}  // namespace ringsmith::apps
