#pragma once

#include <fstream>
#include <string>
#include <sys/types.h>

namespace ringsmith::testing {

// True if the process runs. A zombie does not count.
inline bool alive(pid_t pid) {
  std::string status;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), status);
  const std::size_t name = status.rfind(')');
  return name != std::string::npos && status.size() > name + 2 && status[name + 2] != 'Z';
}

}  // namespace ringsmith::testing
