#include "runtime/comm/failure/process_state.hpp"

#include <chrono>
#include <fstream>
#include <thread>

namespace ringsmith::comm {

namespace {

// The letter that ps shows; 0 if there is nothing to be seen.
char state_letter(pid_t pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  // PID (NAME) STATE ..., where the name may hold anything, brackets too.
  const std::size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

// Who sleeps is awake for a moment now and then, as when a thread of its own has news: only who is
// never seen asleep computes.
char settled_letter(pid_t pid) {
  char letter = state_letter(pid);
  for (int look = 1; look < 5 && letter == 'R'; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    letter = state_letter(pid);
  }
  return letter;
}

}  // namespace

bool is_stopped(pid_t pid) {
  const char letter = state_letter(pid);
  return letter == 'T' || letter == 't';
}

std::string state_of_process(pid_t pid) {
  switch (settled_letter(pid)) {
    case 'T':
      return ": its process is stopped by a signal; kill -CONT " + std::to_string(pid) +
             " lets it go on";
    case 't':
      return ": its process is stopped by a debugger";
    case 'R':
      return ": its process computes";
    case 'S':
      return ": its process sleeps";
    case 'D':
      return ": its process waits for a disk or a device";
    case 'Z':
    case 'X':
      return ": its process has ended";
    default:
      return {};
  }
}

}  // namespace ringsmith::comm
