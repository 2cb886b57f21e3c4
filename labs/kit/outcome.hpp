// The result of a child of the kit, sent in its record on the pipe together with its observations.
//
//     child                                      parent
//     work_and_report() --- kit.status,  ------> take_outcome(record, "rank 2")
//                           kit.message          rethrows the error of the work here
#pragma once

#include <functional>
#include <string>

#include "labs/kit/driver.hpp"

namespace kit {

// In the child: does the work, calls mark_end, writes the record, and exits with the status that
// the work returned; with 70 (EX_SOFTWARE, "internal software error", of sysexits.h) if it threw.
[[noreturn]] void work_and_report(int answers, const std::function<int(Observation&)>& work,
                                  const std::function<void()>& mark_end);

// In the parent: removes status and message from the record. If the work threw, throws
// NotAttempted, or Misuse or std::runtime_error with the child's name before the message.
void take_outcome(Record& seen, const std::string& who);

}  // namespace kit
