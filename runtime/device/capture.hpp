// Tells whether the calling thread captures a graph (graph.hpp), for code that cannot be captured.
#pragma once

namespace ringsmith::capture {

namespace detail {
inline thread_local bool active = false;
[[noreturn]] void refuse(const char* action);
}  // namespace detail

[[nodiscard]] inline bool active() { return detail::active; }

// During a capture, throws UsageError: "a captured step cannot " + action. The action includes the
// reason and the remedy.
inline void refuse(const char* action) {
  if (active()) [[unlikely]]
    detail::refuse(action);
}

}  // namespace ringsmith::capture
