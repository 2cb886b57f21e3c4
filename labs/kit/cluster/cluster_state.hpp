// Internal to cluster.cpp: the state of each rank and each collective.
#pragma once

#include <exception>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "labs/kit/cluster/cluster.hpp"
#include "labs/kit/waits.hpp"

namespace kit {

struct Leave {};                                     // thrown into the ranks of an abandoned run
constexpr std::size_t kEndOfStep = std::size_t(-1);  // value of waits_for at the end of a step

struct Call {
  int root = -1;  // root of a broadcast; -1: all-reduce
  std::size_t elements = 0;
  std::vector<std::vector<float>> given;  // by rank, copied when the rank called
  std::vector<float> result;
  std::vector<bool> called;
  double latest = 0, begin = 0, end = 0;
  bool complete = false;
  [[nodiscard]] std::string name() const {
    return (root < 0 ? "all_reduce" : "broadcast from rank " + std::to_string(root)) + " of " +
           std::to_string(elements) + " elements";
  }
};

struct RankThread {
  std::thread thread;
  std::binary_semaphore wake{0};
  enum { ready, blocked, done } state = ready;
  std::size_t next = 0, waits_for = 0;
  double clock = 0, since = 0, computed = 0;
  int steps = 0;
  std::vector<std::span<float>> buffers;  // by call
  std::vector<bool> pending;              // by call: true if not waited for yet
  std::exception_ptr failure;
};

struct Cluster::State {
  explicit State(const ClusterOptions& given) : options(given), random(given.seed) {}
  ClusterOptions options;
  std::mt19937_64 random;
  std::vector<RankThread> ranks{std::size_t(options.world)};
  std::vector<Call> calls;
  std::size_t counted_from = 0;
  double network_free = 0;
  std::binary_semaphore conductor{0};
  bool unwinding = false;
  std::string misuse;

  RankThread& at(int rank) { return ranks[std::size_t(rank)]; }
  void yield(RankThread& self);  // returns when the rank runs again
  [[noreturn]] void fail(RankThread& self, const std::string& message);
  void call(int rank, std::span<float> data, int root);
  void complete(Call& call, std::size_t number);
  void wait(int rank, std::size_t number);
  [[nodiscard]] std::vector<Wait> waits();
  void resume(RankThread& rank);
  [[noreturn]] void end_all(const std::string& hang);
};

}  // namespace kit
