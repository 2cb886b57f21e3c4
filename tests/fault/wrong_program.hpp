// Programs that are wrong on purpose, and the harness that runs them. Every rank is a process, and
// each must end with an error that names the culprit and the call. The table of programs is in
// wrong_programs_test.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

// Timeout of every wait in these programs: 500 ms, or more if the run queues of the cores are long,
// so that no rank is late by accident.
[[nodiscard]] std::chrono::milliseconds deadline();
// Timeout of programs with their own `start`, in units of deadline(), because processes start
// slowly.
constexpr int kStartPatience = 4;

// One rank, as seen by its actions.
class Rank {
 public:
  struct Scores {  // shared by the ranks of a program and the test
    std::atomic<int> ended[16];
  };
  Rank(std::shared_ptr<comm::Bootstrap> met, comm::GroupOptions with, Scores* shared)
      : bootstrap(std::move(met)), options(std::move(with)), scores(shared) {}

  [[nodiscard]] int rank() const { return bootstrap->rank(); }
  [[nodiscard]] int world() const { return bootstrap->size(); }
  // Waits until all others have ended, with or without an error.
  void wait_for_the_others() const;
  // Stops this process with SIGSTOP; a child continues it when all others have ended.
  void stop() const;

  std::shared_ptr<comm::Bootstrap> bootstrap;
  comm::GroupOptions options;
  std::shared_ptr<comm::ProcessGroup> group;
  Scores* scores;
};

// An action of a rank, and its name in errors if it is a call.
struct Act {
  std::function<void(Rank&)> run;
  std::string name = {};
};

struct WrongProgram {
  std::string name;
  Act everybody = {};
  std::map<int, Act> but = {};  // other actions for some ranks
  std::string error = {};       // type of the error on every rank
  std::vector<std::string> says = {};
  int culprit = -1;  // Where::peer of the others' errors; -1: two sides blame each other
  int world = 3;
  // Ranks that end with another error; "": without an error.
  std::map<int, std::string> instead = {};
  // How a rank gets its group, and whether all ranks first make three matching calls.
  std::function<void(Rank&)> start = {};
  bool calls_agree_first = true;
  bool names_line = true;  // whether mismatches and timeouts name the line of a call
};

// Runs all programs, several at a time, and checks the outcome of every rank (with Catch2).
void check_wrong_programs(const std::vector<WrongProgram>& programs);

}  // namespace ringsmith::test
