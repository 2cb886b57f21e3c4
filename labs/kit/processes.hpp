// A world of real processes, forked from the driver, that share one piece of zeroed memory.
//
// Each has a board in another piece, which its parent reads: what it waits for, and how often it
// has gone on. When everyone who is not done waits for a count that only another one of them could
// raise, that is a deadlock, and it is reported at once; when nothing moves for a while, that is
// one too.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "labs/kit/record.hpp"

namespace kit {

// What one process knows of itself and of the memory that it shares.
class Member {
 public:
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  // The same bytes in every process, at the same address; zero when the world begins.
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
  std::size_t bytes = 0;   // of the shared memory
  std::uint64_t seed = 1;  // of the pauses
  bool pauses = false;     // after some calls of publish
  double patience = 3;     // seconds in which something must move
  // kill -9 for this rank (-1: for none) when all ranks together have gone on so often.
  int kill_rank = -1;
  std::uint64_t kill_after = 0;
};

// The rank was killed as asked. The others, which may wait for it, are killed too: a launcher does
// that, and then starts the job again.
struct Killed {
  int rank = 0;
};

class Processes {
 public:
  explicit Processes(const ProcessOptions& options) : options_(options) {}
  // Runs body in `world` processes. What it puts into its record comes back in out as "NAME.RANK".
  // Throws kit::Hang, kit::NotAttempted, kit::Killed, or std::runtime_error saying how a process
  // ended.
  void run(const std::function<void(Member&, Observation&)>& body, Observation& out);

 private:
  ProcessOptions options_;
};

// Names the operation for reports, as Fabric::begin does.
void begin_operation(const char* name);

}  // namespace kit
