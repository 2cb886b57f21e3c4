// Mistakes that people make in a ring, planted in a right schedule: what then happens is the
// checker's to say. Each changes only data, so that the same mistake can be drawn, run and priced.
//
//     receive_first    rank 0 waits for rank 3, which waits for rank 2, ... which waits for rank 0
//
// lessons/06-ring shows the symptoms that they have in a program without a checker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::apps {

struct Mistake {
  std::string_view name;
  std::string_view meaning;  // what the ranks do wrong
};
[[nodiscard]] const std::vector<Mistake>& mistakes();

// UsageError naming the choices for an unknown mistake, and for a schedule without steps, in which
// none can be made.
[[nodiscard]] comm::Schedule with_mistake(const comm::Schedule& schedule, std::string_view name);

}  // namespace ringsmith::apps
