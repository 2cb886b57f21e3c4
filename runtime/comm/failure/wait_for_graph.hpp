// Composes the text for the error that ends a wait: each rank's current call, how long the rank has
// waited and for which rank. Also asks the kernel for the state of a process.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

struct Sight {
  const Board* board = nullptr;
  const Answer* answers = nullptr;  // null: the rank is not remote, so its board is up to date
  const SiteText* sites = nullptr;
  bool stopped = false;        // its process is stopped, even if its board shows a wait
  std::string elsewhere = {};  // the call of another group in which it waits
};

// A snapshot of all boards, which their owners may be writing. A remote rank sends its board only
// while it waits; otherwise its last answer is used.
class WaitForGraph {
 public:
  explicit WaitForGraph(const std::vector<Sight>& ranks);

  // Returns the rank at the end of the chain of waits that starts at `rank`; -1 if the chain ends
  // in a cycle.
  [[nodiscard]] int culprit_from(int rank) const;
  // Returns e.g. "which has not arrived: its last call was barrier() #0 at train.cpp:12".
  [[nodiscard]] std::string offence_of(int rank) const;
  // Returns e.g. "Where all ranks are: rank 0 in all_reduce(sum, f32, 10) #1 at train.cpp:12, step
  // 3, waits for rank 1 for 300 ms; ...". If ranks wait in a cycle, the text names it.
  [[nodiscard]] std::string describe() const;

 private:
  struct Activity {
    Call call;
    std::uint64_t sequence = 0;
    std::string site;  // " at train.cpp:12"
    std::int64_t step = -1;
    bool busy = false;
    bool stale = false;  // the rank may have moved on since
    bool stopped = false;
    int waits_for = -1;
    std::uint32_t waited = 0;  // ms
    std::string elsewhere;

    [[nodiscard]] std::string name_of_call() const;
    [[nodiscard]] std::string describe() const;
  };
  static Activity look_at(const Sight& sight);
  // Returns a cycle of ranks, each of which waits for the next, and the last for the first; empty
  // if there is none.
  [[nodiscard]] std::vector<int> find_circle() const;
  [[nodiscard]] const Activity& activity(int rank) const {
    return activities_[static_cast<std::size_t>(rank)];
  }

  std::vector<Activity> activities_;
};

// Describes the state of a process of this machine, according to the kernel: ": its process is
// stopped by a signal; kill -CONT 4711 lets it continue", ": its process computes", ": its process
// sleeps in open() of a file or a FIFO", ": its process has ended"; empty if this process cannot
// see it.
[[nodiscard]] std::string state_of_process(pid_t pid);

// True if a signal or a debugger has stopped the process. False if this process cannot see it.
[[nodiscard]] bool is_stopped(pid_t pid);

}  // namespace ringsmith::comm
