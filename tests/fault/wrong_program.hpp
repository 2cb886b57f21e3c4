// Runs programs that are wrong on purpose. Every rank is a process, and must end with an error that
// names the culprit and the call. The table of programs is in wrong_programs_test.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

// Timeout of every wait in these programs: 500 ms, or more if the cores' run queues are long.
[[nodiscard]] std::chrono::milliseconds deadline();
// Timeout of programs with their own `start`, in units of deadline(), because processes start
// slowly.
constexpr int kStartPatience = 4;

class Rank {
 public:
  struct Scores {  // shared by the ranks of a program and the test
    std::atomic<int> ended[16];
  };
  Rank(std::shared_ptr<comm::Bootstrap> met, comm::GroupOptions with, Scores* shared)
      : bootstrap(std::move(met)), options(std::move(with)), scores(shared) {}

  [[nodiscard]] int rank() const { return bootstrap->rank(); }
  [[nodiscard]] int world() const { return bootstrap->size(); }
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
  std::string error = {};       // type of the error on every rank that is not in `instead`
  std::vector<std::string> says = {};
  // Expected Where::peer on the other ranks. -1: not checked, because there is no single culprit or
  // the error names no peer.
  int culprit = -1;
  int world = 3;
  std::map<int, std::string> instead = {};  // rank -> part of its error; "": it has none
  // How a rank gets its group, and whether all ranks first make three matching calls.
  std::function<void(Rank&)> start = {};
  bool calls_agree_first = true;
  bool names_line = true;  // whether mismatches and timeouts name the line of a call
};

// Runs the programs concurrently, and checks every rank's outcome with Catch2.
void check_wrong_programs(const std::vector<WrongProgram>& programs);

}  // namespace ringsmith::test
