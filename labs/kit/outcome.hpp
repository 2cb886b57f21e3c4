// The result of a child process started by the kit, in the same record as its observations.
//
//     child                                      parent
//     work_and_report() --- kit.status,  ------> take_outcome(record, "rank 2")
//                           kit.message          rethrows the child's error
#pragma once

#include <functional>
#include <string>

#include "labs/kit/driver.hpp"

namespace kit {

// In the child: calls work, then mark_end, writes the record, and exits with the status that work
// returned, or with 70 (EX_SOFTWARE of sysexits.h, "internal software error") if it threw.
[[noreturn]] void work_and_report(int answers, const std::function<int(Observation&)>& work,
                                  const std::function<void()>& mark_end);

// In the parent: removes status and message from the record. If the child's work threw, throws
// NotAttempted, or Misuse or std::runtime_error with the child's name before the message.
void take_outcome(Record& seen, const std::string& who);

}  // namespace kit
