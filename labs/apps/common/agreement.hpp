// Stopping together. When one rank finds a bad file, the others must not wait for it in a
// collective until a deadline, and a mistake that all ranks see must not be printed by each.
#pragma once

#include <functional>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// "Another rank says why": leaves the program with that rank's exit code, without a word.
class QuietStop : public Error {
 public:
  explicit QuietStop(ExitCode code) : Error("stopped by another rank"), code_(code) {}
  [[nodiscard]] ExitCode exit_code() const noexcept override { return code_; }

 private:
  ExitCode code_;
};

// Collective. Runs body on every rank; if it throws an Error anywhere, the lowest such rank throws
// it on and all others throw QuietStop.
void together(comm::ProcessGroup& group, const std::function<void()>& body);

// The whole of main(): run_main() of runtime/base/error.hpp, which also understands QuietStop.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ringsmith::apps
