// A lab's driver.cpp includes the student's file and this one, and names its scenarios:
//
//     KIT_SCENARIO(all_reduce) {               // const kit::Request& in, kit::Observation& out
//       const auto world = in.integer("world");
//       ...
//       out.put("sum", sum);
//     }
//
// main() is the kit's. It runs one scenario a process: it takes a request from the judge, calls the
// scenario, and answers with what it observed, or with how the student's code ended: "not
// attempted", "hang" with a report, "threw" with the exception's text.
#pragma once

#include <string>

#include "labs/kit/record.hpp"
#include "labs/kit/todo.hpp"

namespace kit {

// Throw this when a run cannot end by itself; the text is the hang report.
struct Hang {
  std::string report;
};
// Throw this when the student's code used the kit wrongly (sizes that do not match, a rank that
// does not exist): a wrong answer whose message is already known.
struct Misuse {
  std::string message;
};

// Who can describe where every rank stands, for the report of a run that did not end in time. It is
// called from the watchdog's thread while the ranks are still running: it must not take a lock.
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
