// Runs a schedule without data, to find out which ranks post and receive, and which peers they wait
// for.
//
// One run is enough. A rank's steps are fixed in advance, a receive names its peer, and a message
// never disables a step that was possible before. Therefore all maximal executions perform the same
// steps and stop at the same place, in whatever order the ranks are served (they are Kahn process
// networks with bounded queues). If this run finishes, every run finishes.
//
//     rank 0   post ---message---> receive   rank 1        a connection holds at most k messages
//              step 4              step 4                  that were posted and not yet received
#pragma once

#include <map>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Capacity of a connection.
struct LinkModel {
  static constexpr int kUnlimited = -1;
  // Number of messages that the connection from one sender to one receiver holds. 0 is rendezvous:
  // a send ends when its receiver has reached the matching receive.
  int slots = kUnlimited;
  // The send and the receive of a step proceed concurrently, as for a message that is larger than
  // all slots together and moves in slices. The step ends when both end.
  bool streamed = false;
};

struct Blocked {
  int rank = 0;
  int step = 0;
  bool sending = false;  // waits for a free slot (otherwise for a message)
  int peer = 0;          // the other end of that connection
};

// An observer is notified of every event of a run, in one of the possible orders.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void posted(int /*rank*/, int /*step*/) {}
  // The message that sender posted at sender_step arrives. A local step has sender == rank.
  virtual void received(int /*rank*/, int /*step*/, int /*sender*/, int /*sender_step*/) {}
};

// Runs the schedule until no rank can advance; returns the ranks that have not finished. Peers must
// be ranks of the world.
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires,
                                             Observer& observer);
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires);

// The content of every chunk of every rank, as a list of contributions.
//
// A value is represented by its contributions: {rank 0's chunk 2} at the start, and after a reduce
// the contributions of both sides, each as often as it was added. Two values are the same sum,
// apart from its order, if and only if their lists are equal, so one run is a proof for all inputs.
//
//     ring all-reduce, 3 ranks, chunk 0    rank 0     rank 1     rank 2
//       before                             {0}        {1}        {2}
//       after step 0                       {0}        {1}        {1 2}
//       after step 1                       {0 1 2}    {1}        {1 2}
//       ...                                {0 1 2}    {0 1 2}    {0 1 2}

// The original value of `chunk` on `rank`; kUndefined for memory that has never been written.
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

// Tracks the values through a run of interpret().
class Contributions : public Observer {
 public:
  explicit Contributions(const Schedule& schedule);

  void posted(int rank, int step) override;
  void received(int rank, int step, int sender, int sender_step) override;

  [[nodiscard]] const Value& value(int rank, int chunk) const;
  [[nodiscard]] int last_written(int rank, int chunk) const;  // step, or -1: never

  // A copy that destroyed contributions that the new value does not contain.
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
  // (sender, its step) -> the value of each chunk of the message
  std::map<std::pair<int, int>, std::vector<Value>> in_flight_;
  std::vector<Loss> losses_;
};

// The value of a chunk of a rank's work buffer (or separate input) before the first step.
[[nodiscard]] Value initial_value(const Schedule& schedule, int rank, int chunk);

// The value that the collective promises for a chunk on a rank; empty if it promises none.
[[nodiscard]] Value promised_value(const Schedule& schedule, int rank, int chunk);

}  // namespace ringsmith::comm
