// A group of 1 to 8 ranks with collectives that run beside the computation, on a virtual clock.
//
//     rank 0    compute | compute | compute | wait .....|
//     rank 1    compute   | compute | compute   | wait .|
//     network           |  [ #0 ]  |[ #1 ]     [ #2 ]
//                          begins when the last rank has called it, and the one before it is over
//
// What lab 09 needs and labs/kit/fabric/ is not: here the collective is given, and the question
// is when it is called. The k-th call of each rank is one collective: kind and size must agree. One
// rank runs at a time, until it waits, so the same seed gives the same run; when nobody can go on,
// that is reported at once. The clock counts what the driver calls computation, and what the
// network takes: 2 (N-1) alpha + 2 (N-1)/N beta bytes for an all-reduce, the ring's price.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "labs/kit/record.hpp"

namespace kit {

class Cluster;

// A collective that has been started. Until wait() returns, the buffer belongs to the network:
// neither write nor trust it.
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

// One rank's view of the group. All ranks make the same calls in the same order.
class Group {
 public:
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  // Starts; after wait() data holds the sum over all ranks, the same bits on each.
  [[nodiscard]] Work all_reduce(std::span<float> data);
  // data of rank `root` on every rank, when it returns.
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
  std::uint64_t seed = 1;  // which rank goes on next
  double alpha = 0;        // virtual seconds a message
  double beta = 0;         // virtual seconds a byte
};
ClusterOptions cluster_options(const Request& in);

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  // Runs body once for each rank. Throws kit::Hang, kit::Misuse, and what a rank threw.
  void run(const std::function<void(Group&)>& body);

  // For drivers. The clock of a rank goes on by `seconds`; the ranks meet, and what was started
  // must have been waited for; the calls made from here on are counted anew.
  void compute(int rank, double seconds);
  void end_of_step(int rank);
  void count_from_here(int rank);
  // kinds (0 broadcast, 1 all-reduce), elements, begins, ends: one number a collective since the
  // start of the count; finish, computed: virtual seconds of each rank since then.
  void observe(Observation& out) const;

 private:
  friend class Group;
  friend class Work;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kit
