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
#pragma once

#include <map>

#include "runtime/comm/analysis/interpreter.hpp"

namespace ringsmith::comm {

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
