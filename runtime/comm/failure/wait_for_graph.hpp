// Who is where, since when, and waits for whom, and what the kernel says of its process: for the
// error that ends a wait.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// What is seen of a rank: its board, and of a remote one also its two entries of the agreement
// barrier.
struct Sight {
  const Board* board = nullptr;
  const Answer* answers = nullptr;  // null: not remote, so that the board is up to date
  const SiteText* sites = nullptr;
  bool stopped = false;        // its process is, whatever its board says
  std::string elsewhere = {};  // the call of another group that it waits in
};

// Made of the boards of all ranks while their owners may write them: no more than a snapshot. A
// remote rank shows its board only while it waits; of others there is their last answer.
class WaitForGraph {
 public:
  explicit WaitForGraph(const std::vector<Sight>& ranks);

  // Whom one comes to by going from rank to whom it waits for, and on; -1 if that is a circle.
  [[nodiscard]] int culprit_from(int rank) const;
  // "which is not in a call: its last one was barrier() #0 at train.cpp:12".
  [[nodiscard]] std::string offence_of(int rank) const;
  // "Where all ranks are: rank 0 in all_reduce(sum, f32, 10) #1 at train.cpp:12, step 3, waits for
  // rank 1 for 300 ms; ...". Ranks that wait in a circle, whom nobody but they themselves could
  // have helped, are named at the end.
  [[nodiscard]] std::string describe() const;

 private:
  struct Place {
    Call call;
    std::uint64_t sequence = 0;
    std::string site;  // " at train.cpp:12"
    std::int64_t step = -1;
    bool busy = false;
    bool stale = false;  // it may be elsewhere by now
    bool stopped = false;
    int waits_for = -1;
    std::uint32_t waited = 0;  // ms
    std::string elsewhere;

    [[nodiscard]] std::string name_of_call() const;
    [[nodiscard]] std::string describe() const;
  };
  static Place look_at(const Sight& sight);
  // Ranks of which each waits for the next, and the last one for the first; or none.
  [[nodiscard]] std::vector<int> find_circle() const;
  [[nodiscard]] const Place& place(int rank) const {
    return places_[static_cast<std::size_t>(rank)];
  }

  std::vector<Place> places_;
};

// What the kernel says of a process that others wait for: the difference between a hang and a stop.
// ": its process is stopped by a signal; kill -CONT 4711 lets it continue", ": its process
// computes", ": its process sleeps in open() of a file or a FIFO", ": its process has ended"; empty
// if this process may not see it. Same machine only.
[[nodiscard]] std::string state_of_process(pid_t pid);

// By a signal or a debugger. False if this process may not see it.
[[nodiscard]] bool is_stopped(pid_t pid);

}  // namespace ringsmith::comm
