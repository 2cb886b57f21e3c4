#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "labs/apps/launch/flight_log.hpp"
#include "tests/apps/programs.hpp"
#include "tests/fault/fork_ranks.hpp"

namespace ringsmith::test {

// Runs an incorrect program, and returns the flight recorders that its ranks wrote.
inline std::vector<comm::FlightLog> logs_of(const testing::TemporaryFolder& folder, int world,
                                            const std::function<void(comm::ProcessGroup&)>& body,
                                            int timeout_ms = 10'000) {
  comm::GroupOptions options;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  options.flight_folder = folder.path;
  (void)run_ranks(world, options, body);
  std::vector<comm::FlightLog> logs;
  for (int r = 0; r < world; ++r) {
    const std::string path = folder / ("flight-world-rank" + std::to_string(r));
    if (std::filesystem::exists(path)) logs.push_back(comm::read_flight(path));
  }
  return logs;
}

inline void all_reduce(comm::ProcessGroup& g, std::size_t n, int times = 1) {
  std::vector<float> x(n);
  for (int i = 0; i < times; ++i) g.all_reduce(std::span(x));
}

inline testing::ProgramResult reader(const std::vector<std::string>& words) {
  std::vector<std::string> argv{RINGSMITH_BINARY_DIR "/bin/flight_reader"};
  argv.insert(argv.end(), words.begin(), words.end());
  return testing::run_program(argv);
}

}  // namespace ringsmith::test
