// Proves that a schedule fulfils its collective's contract, or reports where and why it does not.
//
// 1. shape       peers are other ranks of the world, and chunk numbers exist; chunks are inside the
//                buffer, do not overlap and leave no gap
// 2. messages    between two ranks, the n-th send matches the n-th receive, including its length
// 3. progress    all ranks finish with k slots per connection, for each requested k; if not, the
//                cycle of ranks that wait for each other is reported
// 4. values      every promised chunk holds every contribution exactly once, and nothing else
// 5. cost        steps and bytes agree with the algorithm's table (built-in algorithms only)
//
// Each part relies on the parts before it, so checking stops after the first part that finds a
// fault. The proof holds for all inputs and all timings (interpreter.hpp explains why).
#pragma once

#include <optional>

#include "runtime/analysis/interpreter.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

enum class Fault : std::uint8_t {
  shape,
  chunk_outside,
  chunk_overlap,
  chunk_gap,
  unmatched_send,
  unmatched_receive,
  size_mismatch,
  deadlock,
  undefined_data,
  missing,
  doubled,
  foreign,
  wrong_owner,
  cost,
  memory,
};
[[nodiscard]] const char* name_of(Fault fault);

struct Violation {
  Fault fault = Fault::shape;
  int rank = -1;  // -1: the schedule as a whole
  int step = -1;  // -1: no particular step
  std::string reason;

  [[nodiscard]] std::string describe() const;  // "rank 2, step 3: deadlock: waits ..."
};

struct CheckOptions {
  // The kinds of connections for which progress is proved. With {0, true} (messages larger than the
  // slots), one_shot and double_tree fail on two or more ranks, because they need slots that hold
  // whole messages; all other algorithms pass.
  std::vector<LinkModel> wires = {{1, false}, {2, false}, {8, false}};
};

// Returns an empty list if the schedule is proved correct.
[[nodiscard]] std::vector<Violation> check(const Schedule& schedule,
                                           const CheckOptions& options = {});

// The cost of a built-in algorithm by the formulas in the generators' headers, computed without the
// steps, so that the checker can compare the steps with it.
struct Promise {
  int steps = 0;            // of the rank that has the most
  std::size_t busiest = 0;  // elements sent by the rank that sends the most
  std::size_t total = 0;    // elements sent, summed over all ranks
  bool operator==(const Promise&) const = default;
};

// Returns nothing for an algorithm that is not in select.hpp's table, such as a student's own.
[[nodiscard]] std::optional<Promise> promised_cost(const Schedule& schedule);

// Returns the figures of promised_cost(), but counted from the steps.
[[nodiscard]] Promise counted_cost(const Schedule& schedule);

}  // namespace ringsmith::comm
