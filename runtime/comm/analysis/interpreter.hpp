// Runs a schedule without data: who posts, who receives, who waits for whom.
//
// One run is enough. A rank's steps are fixed beforehand, a receive names its peer, and a message
// never makes an earlier possible step impossible: executions are monotone, so whatever order the
// ranks are served in, all maximal executions do the same steps and stop at the same place (Kahn's
// networks, with bounded queues). Hence "this run finished" means "every run finishes".
//
//     rank 0   post ---message---> receive   rank 1        a connection holds at most k messages
//              step 4              step 4                  that were posted and not yet received
#pragma once

#include <map>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// How much a connection holds.
struct LinkModel {
  static constexpr int kUnlimited = -1;
  // Messages between one sender and one receiver. 0 is rendezvous: a send ends when its receiver is
  // at the matching receive.
  int slots = kUnlimited;
  // With 0 slots: the send and the receive of a step go on side by side, as they do when a message
  // is larger than all slots together and moves in slices. The step ends when both have.
  bool streamed = false;
};

// Where a rank stands when nobody can go on.
struct Blocked {
  int rank = 0;
  int step = 0;
  bool sending = false;  // waits for a free slot (else: for a message)
  int peer = 0;          // of whom
};

// Told about everything that happens, in an order that could happen.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void posted(int /*rank*/, int /*step*/) {}
  // The message that sender posted at sender_step arrives. For a local step sender == rank.
  virtual void received(int /*rank*/, int /*step*/, int /*sender*/, int /*sender_step*/) {}
};

// Runs until nobody can go on; the result is empty when all ranks have finished. Peers must be
// ranks of the world (the checker looks first).
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires,
                                             Observer& observer);
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires);

// What every chunk of every rank holds, as the list of what went into it.
//
// A value is written as its contributions: {rank 0's chunk 2} before anything happens, and after a
// reduce the contributions of both sides, each as often as it was added. Two values are the same
// sum (in some order) exactly when their lists are equal, so one run proves all inputs at once.
//
//     ring all-reduce, 3 ranks, chunk 0    rank 0     rank 1     rank 2
//       before                             {0}        {1}        {2}
//       after step 0                       {0}        {1}        {1 2}
//       after step 1                       {0 1 2}    {1}        {1 2}
//       ...                                {0 1 2}    {0 1 2}    {0 1 2}

// rank's original value of chunk; kUndefined for memory that nobody has filled.
struct Origin {
  int rank = 0;
  int chunk = 0;
  bool operator==(const Origin&) const = default;
  bool operator<(const Origin& other) const {
    return rank != other.rank ? rank < other.rank : chunk < other.chunk;
  }
};
constexpr Origin kUndefined{-1, -1};

using Value = std::vector<Origin>;  // sorted; an origin appears as often as it was added

// Follows the values through a run. Feed it to interpret().
class Contributions : public Observer {
 public:
  explicit Contributions(const Schedule& schedule);

  void posted(int rank, int step) override;
  void received(int rank, int step, int sender, int sender_step) override;

  [[nodiscard]] const Value& value(int rank, int chunk) const;
  [[nodiscard]] int last_written(int rank, int chunk) const;  // step, or -1: never

  // Where a copy destroyed contributions that were not in the new value.
  struct Loss {
    int rank, step, chunk;
    Value lost;
  };
  [[nodiscard]] const std::vector<Loss>& losses() const { return losses_; }

 private:
  [[nodiscard]] std::size_t index(int rank, int chunk) const;
  void take(int rank, int step, int chunk, Value arrived);

  const Schedule& schedule_;
  std::vector<Value> values_;  // [rank * chunks + chunk]
  std::vector<int> written_;
  // (sender, its step): of each chunk of the message
  std::map<std::pair<int, int>, std::vector<Value>> in_flight_;
  std::vector<Loss> losses_;
};

// What the work buffer (or the separate input) of a rank holds before the first step.
[[nodiscard]] Value initial_value(const Schedule& schedule, int rank, int chunk);

// What the collective promises for a chunk on a rank at the end; empty where it promises nothing.
[[nodiscard]] Value promised_value(const Schedule& schedule, int rank, int chunk);

}  // namespace ringsmith::comm
