// A group of 1 to 8 ranks with collectives that overlap with computation, on a virtual clock.
//
//     rank 0    compute | compute | compute | wait .....|
//     rank 1    compute   | compute | compute   | wait .|
//     network           |  [ #0 ]  |[ #1 ]     [ #2 ]
//                          begins when all ranks have called it and the previous one has ended
//
// Unlike labs/kit/fabric/, it provides the collectives; the task is to call them at the right time.
// The k-th calls of all ranks form one collective, so their kinds and sizes must match. One rank
// runs at a time, and ranks are switched only in calls of the kit. Therefore the same seed gives
// the same run, and a deadlock is reported immediately. The clock advances by the computation that
// the driver declares and by the network's time: 2 (N-1) alpha + 2 (N-1)/N beta bytes for an
// all-reduce, the cost of a ring.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "labs/kit/record.hpp"

namespace kit {

class Cluster;

// A started collective. Until wait() returns, the network owns the buffer: neither write to it nor
// rely on its contents.
class Work {
 public:
  void wait();

 private:
  friend class Group;
  Work(Cluster& cluster, int rank, std::size_t call)
      : cluster_(&cluster), rank_(rank), call_(call) {}
  Cluster* cluster_;
  int rank_;
  std::size_t call_;
};

class Group {
 public:
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  // Starts an all-reduce. After wait(), data holds the sum over all ranks, bitwise the same on
  // every rank.
  [[nodiscard]] Work all_reduce(std::span<float> data);
  // Blocks until data holds rank `root`'s values.
  void broadcast(std::span<float> data, int root);

 private:
  friend class Cluster;
  Group(Cluster& cluster, int rank, int world) : cluster_(cluster), rank_(rank), world_(world) {}
  Cluster& cluster_;
  int rank_;
  int world_;
};

struct ClusterOptions {
  int world = 1;
  std::uint64_t seed = 1;  // chooses the rank that runs next
  double alpha = 0;        // virtual seconds per message
  double beta = 0;         // virtual seconds per byte
};
ClusterOptions cluster_options(const Request& in);

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  // Runs body on each rank. Throws kit::Hang, kit::Misuse, or std::runtime_error with the rank's
  // number and the text of body's std::exception; body's other exceptions propagate unchanged.
  void run(const std::function<void(Group&)>& body);

  // For drivers. compute: advances the rank's clock. end_of_step: synchronizes the ranks; every
  // collective must have been completed by wait(). count_from_here: resets the counts.
  void compute(int rank, double seconds);
  void end_of_step(int rank);
  void count_from_here(int rank);
  // kinds (0: broadcast, 1: all-reduce), elements, begins, ends: one number per collective since
  // the counts were reset. finish, computed: virtual seconds of each rank since that reset.
  void observe(Observation& out) const;

 private:
  friend class Group;
  friend class Work;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kit
