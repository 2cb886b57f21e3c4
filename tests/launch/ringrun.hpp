#pragma once

#include <string>
#include <vector>

#include "tests/apps/programs.hpp"

namespace ringsmith::testing {

inline const std::string kRingrun = RINGSMITH_BINARY_DIR "/bin/ringrun";

// Runs ringrun OPTIONS -- sh -c SCRIPT, with a limit of one minute.
inline ProgramResult ringrun_shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), kRingrun);
  options.insert(options.end(), {"--", "sh", "-c", script});
  return run_program(options, 60);
}

inline ProgramResult ringrun(std::vector<std::string> words) {
  words.insert(words.begin(), kRingrun);
  return run_program(words, 60);
}

}  // namespace ringsmith::testing
