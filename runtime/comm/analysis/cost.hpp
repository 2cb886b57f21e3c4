// What a schedule costs on a machine, from a handful of measured constants.
//
//     time = overhead + steps * alpha + bytes * beta + bytes reduced * gamma
//
// beta and gamma are not constant: a chunk that fits a cache moves several times faster than one
// that comes from memory. So each is a curve over the working set, given at a few sizes.
#pragma once

#include <optional>
#include <string>

#include "runtime/comm/analysis/simulator.hpp"

namespace ringsmith::comm {

// Seconds a byte as a function of the working set in bytes: straight between the given points on a
// logarithmic axis of sizes, constant beyond both ends.
class Rate {
 public:
  struct Point {
    double working_set = 0;  // bytes
    double seconds_per_byte = 0;
  };
  Rate() = default;
  explicit Rate(double seconds_per_byte) : points_{{1, seconds_per_byte}} {}
  explicit Rate(std::vector<Point> points);  // UsageError if empty or not increasing in size

  [[nodiscard]] double at(double working_set) const;
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_ = {{1, 0}};
};

struct CostModel {
  // Of the links between nodes, where they are others than those within: as fast as one rank of a
  // node has them alone.
  struct Wire {
    double alpha = 0;
    Rate beta;
  };
  std::string origin;   // where the constants are from, for the reader of a prediction
  double overhead = 0;  // seconds an operation
  double alpha = 0;     // seconds a step
  Rate beta;            // moving
  Rate gamma;           // reducing
  std::optional<Wire> wire;

  // The constants for one size of buffer. The working set is what all ranks of a node touch.
  // node_of: [rank], as in schedule.hpp; senders: ranks of a node that share its link to the
  // others. Only a model with wires looks at them.
  [[nodiscard]] Network network(double working_set, const std::vector<int>& node_of = {},
                                int senders = 1) const;
};

// How often each constant enters the time of a schedule between uniform links: by simulating it
// with one constant of 1 and the others 0. Elements of one byte.
struct CostShape {
  double steps = 0;    // times alpha
  double moved = 0;    // bytes, times beta
  double reduced = 0;  // bytes, times gamma
};
[[nodiscard]] CostShape shape_of(const Schedule& schedule);

// Of a schedule of elements of one byte, which knows its nodes; the buffer is the working set.
[[nodiscard]] double predicted_time(const CostModel& model, const Schedule& schedule);

// The textbook times, for uniform links and chunks of equal size; they are also what simulate()
// gives. bytes is the length of the buffer.
[[nodiscard]] double ring_all_reduce_time(int world, double bytes, Link link, double gamma);
[[nodiscard]] double ring_half_time(int world, double bytes, Link link, double gamma);  // RS; AG: 0
[[nodiscard]] double tree_time(int world, double bytes, Link link, double gamma);  // reduce; bc.: 0

// Which all-reduce is the fastest at which size, by the cost model: latency decides for small
// messages, bytes on the slowest link for large ones, and where the two meet depends on the
// machine.
//
//     4 nodes of 8      double_tree            | halving_doubling      | hierarchical
//                       few steps              | few steps, few bytes  | fewest bytes on the wire
//                       ----------------------------------------------------------------> bytes
//
// The choice changes the order of sums, and so their last bits: the group makes it only when asked.

struct SizedChoice {
  double up_to = 0;  // bytes, inclusive; the last one holds for all above it, too
  std::string algorithm;
  double seconds = 0;  // predicted, at up_to
  bool operator==(const SizedChoice&) const = default;
};

// The candidates: every all-reduce that ranks may be told to run (process_group.hpp's Algorithm).
[[nodiscard]] const std::vector<std::string>& choosable_algorithms();

// The fastest for each range of sizes, in increasing order; neighbours differ. Sizes are tried in
// powers of four from 256 bytes to 256 MiB. World >= 1.
[[nodiscard]] std::vector<SizedChoice> fastest_by_size(const CostModel& model, int world,
                                                       const std::vector<int>& node_of);

// Of choices that are not empty.
[[nodiscard]] const SizedChoice& choice_for(const std::vector<SizedChoice>& choices, double bytes);

}  // namespace ringsmith::comm
