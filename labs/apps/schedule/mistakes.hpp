// Common mistakes in a ring, planted in a correct schedule. The faulty schedule can be checked and
// run like any other, but cannot be simulated if it never ends.
//
//     receive_first    rank 0 waits for rank 3, which waits for rank 2, ... which waits for rank 0
//
// lessons/06-ring shows the symptoms in a program without a checker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::apps {

struct Mistake {
  std::string_view name;
  std::string_view meaning;  // description of the ranks' mistake
};
[[nodiscard]] const std::vector<Mistake>& mistakes();

// Throws UsageError if the mistake is unknown, naming the choices, or if the schedule has no steps.
[[nodiscard]] comm::Schedule with_mistake(const comm::Schedule& schedule, std::string_view name);

}  // namespace ringsmith::apps
