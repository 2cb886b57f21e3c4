// What became of a child of the kit: in its record on the pipe, beside what it has observed.
//
//     child                                      parent
//     work_and_report() --- kit.status,  ------> take_outcome(record, "rank 2")
//                           kit.message          throws here what the work threw there
#pragma once

#include <functional>
#include <string>

#include "labs/kit/driver.hpp"

namespace kit {

// In the child: does the work, calls mark_end, writes the record, and ends the process with the
// status that the work returned; 70 ("internal software error", as sysexits.h has it) if it threw.
[[noreturn]] void work_and_report(int answers, const std::function<int(Observation&)>& work,
                                  const std::function<void()>& mark_end);

// In the parent: takes status and message off the record. Throws NotAttempted, Misuse or
// std::runtime_error with the child's name before the message, if the work has thrown.
void take_outcome(Record& seen, const std::string& who);

}  // namespace kit
