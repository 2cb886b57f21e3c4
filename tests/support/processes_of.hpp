#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/support/alive.hpp"

namespace ringsmith::testing {

inline std::vector<pid_t> all_processes() {
  std::vector<pid_t> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      out.push_back(std::stoi(name));
  }
  return out;
}

// Returns the running processes that were started with NAME=VALUE in their environment.
inline std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> out;
  for (const pid_t pid : all_processes()) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    if (('\0' + all).find('\0' + variable + '\0') != std::string::npos && alive(pid))
      out.push_back(pid);
  }
  return out;
}

inline pid_t child_named(pid_t parent, const std::string& name) {
  for (const pid_t pid : all_processes()) {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (close == std::string::npos || line.substr(open + 1, close - open - 1) != name) continue;
    std::istringstream rest(line.substr(close + 1));
    char state = 0;
    pid_t its_parent = -1;
    if (rest >> state >> its_parent && its_parent == parent && state != 'Z') return pid;
  }
  return -1;
}

}  // namespace ringsmith::testing
