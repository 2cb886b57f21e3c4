// Starting ringrun from tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"

namespace ringsmith::testing {

inline const std::string kRingrun = RINGSMITH_BINARY_DIR "/bin/ringrun";

struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ringsmith-launch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path = name;
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path / name; }
};

inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// ringrun OPTIONS -- sh -c SCRIPT, within a minute.
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
