// A world of real processes, forked from the driver, that share a block of zeroed memory.
//
// Each process publishes its current wait and its number of moves on a board, which the parent
// reads. The parent reports a deadlock immediately if all processes that are not done wait for
// counts that only they could raise. The judge's alarm ends all other hangs, with the same report.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "labs/kit/record.hpp"

namespace kit {

class Member {
 public:
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  // The same bytes in every process, at the same address; initially zero.
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  friend class Processes;
  Member(int rank, int world, std::span<std::byte> memory)
      : rank_(rank), world_(world), memory_(memory) {}
  int rank_;
  int world_;
  std::span<std::byte> memory_;
};

struct ProcessOptions {
  int world = 1;
  std::size_t bytes = 0;   // size of the shared memory
  std::uint64_t seed = 1;  // determines the pauses
  bool pauses = false;     // pause after some calls of publish
  // Kills this rank with SIGKILL after kill_after moves and waits, summed over all ranks; -1 kills
  // no rank.
  int kill_rank = -1;
  std::uint64_t kill_after = 0;
};

// Thrown when the rank was killed as requested. The other ranks, which may be waiting for it, are
// killed, too.
struct Killed {
  int rank = 0;
};

class Processes {
 public:
  explicit Processes(const ProcessOptions& options) : options_(options) {}
  // Runs body in `world` processes. A value NAME that rank R puts in its Observation appears in out
  // as "NAME.R". Throws kit::Hang, kit::NotAttempted, kit::Misuse, kit::Killed, or
  // std::runtime_error describing how a process ended.
  void run(const std::function<void(Member&, Observation&)>& body, Observation& out);

 private:
  ProcessOptions options_;
};

// Sets the name of the operation for reports, like Fabric::begin.
void begin_operation(const char* name);

}  // namespace kit
