// A lab's driver.cpp includes the student's file and this file, and defines named scenarios:
//
//     KIT_SCENARIO(all_reduce) {               // const kit::Request& in, kit::Observation& out
//       const auto world = in.integer("world");
//       ...
//       out.put("sum", sum);
//     }
//
// The kit provides main(), which runs one scenario per process. It reads a request from the judge,
// calls the scenario, and answers with the scenario's observations and a status: "done", "not
// attempted", "hang", "misuse" or "threw". The answer's message contains the report or the
// exception's text.
#pragma once

#include <string>

#include "labs/kit/record.hpp"
#include "labs/kit/todo.hpp"

namespace kit {

// Thrown when a run can never end; the text is the hang report.
struct Hang {
  std::string report;
};
// Thrown when the student's code uses the kit wrongly (sizes that do not match, a rank that does
// not exist). It counts as a wrong answer.
struct Misuse {
  std::string message;
};

// Describes the state of every rank, for the report of a run that did not end in time. The
// watchdog's thread calls it while the ranks are running, so it must not take a lock.
using Describe = std::string (*)();
void describe_hangs_with(Describe describe);

using Scenario = void (*)(const Request&, Observation&);
struct Registered {
  Registered(const char* name, Scenario scenario);
};

}  // namespace kit

#define KIT_SCENARIO(name)                                                    \
  static void scenario_##name(const kit::Request& in, kit::Observation& out); \
  static const kit::Registered registered_##name(#name, scenario_##name);     \
  static void scenario_##name([[maybe_unused]] const kit::Request& in,        \
                              [[maybe_unused]] kit::Observation& out)
