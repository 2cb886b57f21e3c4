// One block on one OS thread: its CUDA threads are fibers that run in a seeded order until they
// wait.
//
// A thread begins as a plain call on whatever fiber is free and ends on it: a kernel without
// barriers costs a call per thread. Only a thread that has to wait keeps its fiber, and another
// fiber goes on:
//
//   not begun --> running --> finished
//                 |     ^
//                 v     |
//     waiting (barrier, warp) or spinning --> ready
//
// Ready threads go first, then those that have not begun (warp by warp), then those that spin. If
// nothing but waiting threads is left, nobody will ever come: barrier divergence, reported as such.
// If all only spin, other blocks get the core, and after VGPU_DEADLINE_MS without progress the
// kernel is declared endless, with who spins on what.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/vgpu/api/thread.hpp"
#include "kernels/vgpu/api/warp.hpp"
#include "kernels/vgpu/fault.hpp"
#include "kernels/vgpu/fiber.hpp"
#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/settings.hpp"
#include "kernels/vgpu/warp_meeting.hpp"
#include "kernels/vgpu/watchdog.hpp"

namespace vgpu {

// One CUDA thread of the running block.
struct Thread : ThreadView {
  enum class State : std::uint8_t { not_begun, running, barrier, warp, spinning, finished };
  struct Read {
    const void* address = nullptr;
    std::uint64_t value = 0;
  };
  State state = State::not_begun;
  std::uint8_t next_read = 0;
  std::uint16_t number = 0;  // linear index in the block
  Fiber* fiber = nullptr;
  Source where;               // of the call it waits in
  std::array<Read, 4> reads;  // the last different atomic reads
  LaneRequest lane;           // what it brings to a meeting of its warp
  bool fenced = false;        // has passed a release fence
};

class BlockRunner {
 public:
  static BlockRunner& mine();  // of this OS thread
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void run(Grid& grid, unsigned share, std::uint64_t block_number);

  // For the running thread:
  Thread& self() { return *static_cast<Thread*>(current_thread); }
  int barrier(Combine combine, bool predicate, const Source& where);
  // Brings self().lane to the meeting of the mask's lanes; back with the answer in it.
  void meet(WarpOp op, unsigned mask, const Source& where);
  void spin(const Source& where);
  void progress() { progress_ = true; }
  // For reports about the running thread, in a signal handler too.
  [[nodiscard]] std::string describe_self() const;
  [[nodiscard]] int device() const;
  [[nodiscard]] bool beyond_dynamic_shared(const void* address) const;
  [[nodiscard]] bool in_stack_guard(const void* address) const { return fibers_.in_guard(address); }
  // Ends the process with who waits where.
  [[noreturn]] void stuck(const char* what);

 private:
  static void live(Fiber* self);  // what every fiber does, Quiet
  void run_one(Fiber* self);
  void suspend();              // the running thread waits; returns when it goes on
  Fiber* choose(Fiber* free);  // whom to switch to; `free` could begin a thread itself
  Fiber* idle_fiber();
  void make_ready(std::uint16_t number) { ready_.push_back(number); }
  void close_meetings(unsigned warp);  // of which all that will come have come
  void finish(Thread& thread);
  void pause();  // all that live only spin
  [[nodiscard]] std::string describe() const;

  static constexpr std::size_t kMostShared = 1 << 20;  // address space for dynamic shared memory

  FaultStack fault_stack_;
  Watched watched_{*this};
  FiberPool fibers_;
  std::vector<Fiber*> idle_, used_;
  std::vector<Thread> threads_;
  std::vector<std::uint16_t> order_;  // in which threads begin
  std::vector<std::uint16_t> ready_;
  std::size_t next_ready_ = 0;
  std::vector<std::uint16_t> spinning_;
  std::array<Warp, 32> warps_;
  Fiber* running_ = nullptr;

  Grid* grid_ = nullptr;
  unsigned share_ = 0;
  BlockView view_{};
  Random random_{0};
  unsigned count_ = 0, begun_ = 0, finished_ = 0;
  unsigned arrived_ = 0, first_arrived_ = 0, counted_ = 0, generation_ = 0;
  int combined_ = 0;
  char barrier_order_[2]{}, shared_order_[2]{};
  std::byte* dynamic_ = nullptr;  // ends at a page that faults
  bool progress_ = false;
  unsigned rounds_ = 0;
  unsigned blocks_run_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// The runner of this OS thread, while it runs a block.
extern constinit thread_local BlockRunner* active_runner;

}  // namespace vgpu
