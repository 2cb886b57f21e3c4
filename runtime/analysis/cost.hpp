// The cost of a schedule on a machine, computed from a few measured constants.
//
//     time = overhead + steps * alpha + bytes * beta + bytes reduced * gamma
//
// beta and gamma are not constant: a chunk that fits in a cache moves several times faster than one
// in memory. Each is therefore a curve over the working set, given at a few sizes.
#pragma once

#include <optional>
#include <string>

#include "runtime/analysis/simulator.hpp"

namespace ringsmith::comm {

// Seconds per byte as a function of the working set in bytes: interpolated linearly between the
// given points on a logarithmic axis of sizes, and constant beyond the first and last point.
class Rate {
 public:
  struct Point {
    double working_set = 0;  // bytes
    double seconds_per_byte = 0;
  };
  Rate() = default;
  explicit Rate(double seconds_per_byte) : points_{{1, seconds_per_byte}} {}
  // Throws UsageError if there are no points, if their sizes are not increasing or not positive, or
  // if a time is not finite.
  explicit Rate(std::vector<Point> points);

  [[nodiscard]] double at(double working_set) const;
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_ = {{1, 0}};
};

struct CostModel {
  // The links between nodes if one rank per node sends; empty if they equal the links within a
  // node.
  struct Wire {
    double alpha = 0;
    Rate beta;
  };
  std::string origin;   // source of the constants, shown with a prediction
  double overhead = 0;  // seconds per operation
  double alpha = 0;     // seconds per step
  Rate beta;            // for bytes moved
  Rate gamma;           // for bytes reduced
  std::optional<Wire> wire;

  // Returns the links and constants for one buffer size. working_set: bytes that all ranks of a
  // node touch. node_of: the node of each rank, as in schedule.hpp; senders: number of ranks of a
  // node that share its link to other nodes. Both matter only if the model has a `wire`.
  [[nodiscard]] Network network(double working_set, const std::vector<int>& node_of = {},
                                int senders = 1) const;
};

// The coefficient of each constant in the time of a schedule on uniform links: the simulated time
// with that constant set to 1, the other constants to 0, and elements of one byte.
struct CostShape {
  double steps = 0;    // times alpha
  double moved = 0;    // bytes, times beta
  double reduced = 0;  // bytes, times gamma
};
[[nodiscard]] CostShape shape_of(const Schedule& schedule);

// Predicted time in seconds, for elements of one byte. The schedule's node_of assigns the ranks to
// nodes; the working set is the size of the buffer.
[[nodiscard]] double predicted_time(const CostModel& model, const Schedule& schedule);

// The textbook times in seconds, for uniform links and chunks of equal size; simulate() returns the
// same times. `bytes` is the length of the buffer. ring_half_time is the time of a reduce-scatter
// or, with gamma = 0, of an all-gather; tree_time is the time of a reduce or, with gamma = 0, of a
// broadcast.
[[nodiscard]] double ring_all_reduce_time(int world, double bytes, Link link, double gamma);
[[nodiscard]] double ring_half_time(int world, double bytes, Link link, double gamma);
[[nodiscard]] double tree_time(int world, double bytes, Link link, double gamma);

// Finds the fastest all-reduce for each size with the cost model. Small messages are dominated by
// latency, large messages by the bytes on the slowest link.
//
//     4 nodes of 8      double_tree            | halving_doubling      | hierarchical
//                       few steps              | few steps, few bytes  | fewest bytes on slow links
//                       ----------------------------------------------------------------> bytes
//
// The choice changes the order of additions and therefore the last bits of sums, so a group uses
// this choice only on request.

struct SizedChoice {
  double up_to = 0;  // bytes, inclusive; the last choice also holds for all larger sizes
  Algorithm algorithm = Algorithm::automatic;
  double seconds = 0;  // predicted, at up_to
  bool operator==(const SizedChoice&) const = default;
};

// The candidates: all algorithms that a group can be asked for (types/collective.hpp), except
// automatic and the variants of ring.
[[nodiscard]] const std::vector<Algorithm>& choosable_algorithms();

// The fastest algorithm for each range of sizes, in increasing order; adjacent ranges have
// different algorithms. Tries powers of four from 256 bytes to 256 MiB. Requires world >= 1.
[[nodiscard]] std::vector<SizedChoice> fastest_by_size(const CostModel& model, int world,
                                                       const std::vector<int>& node_of);

// Throws UsageError if there are no choices.
[[nodiscard]] const SizedChoice& choice_for(const std::vector<SizedChoice>& choices, double bytes);

}  // namespace ringsmith::comm
