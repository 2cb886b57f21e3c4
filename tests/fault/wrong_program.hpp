// Programs that are wrong on purpose, and the harness that runs them: every rank is a process, and
// each must end with an error that names the culprit and the call. wrong_programs_test.cpp has the
// table.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

// Of every wait in these programs: 500 ms; on a machine whose cores have long queues more, so that
// no rank is late that should not be.
[[nodiscard]] std::chrono::milliseconds deadline();
// Of programs with a start of their own: times deadline(), since processes that start take time.
constexpr int kStartPatience = 4;

// One rank, as its part of the program sees it.
class Rank {
 public:
  struct Scores {  // shared by the ranks of a program and the test
    std::atomic<int> ended[16];
  };
  Rank(std::shared_ptr<comm::Bootstrap> met, comm::GroupOptions with, Scores* shared)
      : bootstrap(std::move(met)), options(std::move(with)), scores(shared) {}

  [[nodiscard]] int rank() const { return bootstrap->rank(); }
  [[nodiscard]] int world() const { return bootstrap->size(); }
  // Until all others have ended, with or without an error.
  void wait_for_the_others() const;
  // Stops this process by a signal; another one lets it continue when all others have ended.
  void stop() const;

  std::shared_ptr<comm::Bootstrap> bootstrap;
  comm::GroupOptions options;
  std::shared_ptr<comm::ProcessGroup> group;
  Scores* scores;
};

// Something that a rank does, and what an error calls it, where it is a call.
struct Act {
  std::function<void(Rank&)> run;
  std::string name = {};
};

struct WrongProgram {
  std::string name;
  Act everybody = {};
  std::map<int, Act> but = {};  // what some ranks do instead
  std::string error = {};       // its type, on every rank
  std::vector<std::string> says = {};
  int culprit = -1;  // Where::peer of the others' errors; -1: two sides blame each other
  int world = 3;
  std::map<int, std::string> instead = {};  // ranks that end with another error; "": without one
  // How a rank gets its group; and whether, before it goes wrong, all make three calls that agree.
  std::function<void(Rank&)> start = {};
  bool calls_agree_first = true;
  bool names_line = true;  // do mismatches and timeouts name the line of a call?
};

// Runs all of them, several at a time, and checks what became of every rank (with Catch2).
void check_wrong_programs(const std::vector<WrongProgram>& programs);

}  // namespace ringsmith::test
