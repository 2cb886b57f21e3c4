// One run of a schedule as JSON, to be drawn: every message, each chunk's contents after it, the
// stuck ranks, the checker's findings, and the simulator's times.
//
// A faulty schedule runs as far as it can, so that the fault can be shown.
#pragma once

#include <string>
#include <vector>

#include "runtime/analysis/checker.hpp"
#include "runtime/analysis/interpreter.hpp"
#include "runtime/analysis/simulator.hpp"

namespace ringsmith::apps {

// Events are in a possible order of execution.
struct Happening {
  enum class Kind : std::uint8_t { posted, received };
  Kind kind = Kind::posted;
  int rank = 0, step = 0;
  int sender = 0, sender_step = 0;   // received only
  std::vector<comm::Value> written;  // received only: the message's chunks after it
};

struct Recording {
  int slots = 0;
  std::vector<Happening> happenings;
  std::vector<comm::Blocked> blocked;  // empty: every rank has finished

  [[nodiscard]] std::size_t steps_done(const comm::Schedule& schedule) const;
};

// slots: per connection; 0: rendezvous.
[[nodiscard]] Recording record_run(const comm::Schedule& schedule, int slots);

// One line of JSON. simulation: null if the schedule cannot be priced.
[[nodiscard]] std::string as_json(const comm::Schedule& schedule, const Recording& recording,
                                  const std::vector<comm::Violation>& findings,
                                  const comm::Simulation* simulation);

}  // namespace ringsmith::apps
