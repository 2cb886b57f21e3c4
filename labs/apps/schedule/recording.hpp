// One run of a schedule as JSON, to be drawn: every message, the contents of each chunk after it,
// the ranks that are stuck, the checker's findings, and the simulator's times.
//
// A faulty schedule runs as far as it can, so that the fault can be shown.
#pragma once

#include <string>
#include <vector>

#include "runtime/analysis/checker.hpp"
#include "runtime/analysis/interpreter.hpp"
#include "runtime/analysis/simulator.hpp"

namespace ringsmith::apps {

// An event of the run. A recording lists its events in a possible order of execution.
struct Happening {
  enum class Kind : std::uint8_t { posted, received };
  Kind kind = Kind::posted;
  int rank = 0, step = 0;
  int sender = 0, sender_step = 0;   // received only
  std::vector<comm::Value> written;  // received only: new values of the chunks
};

struct Recording {
  int slots = 0;
  std::vector<Happening> happenings;
  std::vector<comm::Blocked> blocked;  // empty: every rank has finished

  [[nodiscard]] std::size_t steps_done(const comm::Schedule& schedule) const;
};

// slots: messages that a connection holds; 0: rendezvous.
[[nodiscard]] Recording record_run(const comm::Schedule& schedule, int slots);

// Returns one line of JSON. simulation: null if the schedule was not simulated.
[[nodiscard]] std::string as_json(const comm::Schedule& schedule, const Recording& recording,
                                  const std::vector<comm::Violation>& findings,
                                  const comm::Simulation* simulation);

}  // namespace ringsmith::apps
