// Runs one block on one OS thread. Its CUDA threads are fibers, which run in seeded order until
// they wait.
//
// A thread begins and ends as a plain call on any free fiber, so a kernel without barriers costs
// one call per thread. Only a thread that has to wait keeps its fiber:
//
//   not begun --> running --> finished
//                 |     ^
//                 v     |
//     waiting (barrier, warp) or spinning --> ready
//
// Ready threads run first, then threads that have not begun (warp by warp), then spinning threads.
// If only waiting threads are left, barrier divergence is reported. If no thread can run except
// spinning ones, other blocks get the core. After VGPU_DEADLINE_MS without progress, the kernel is
// reported with the spinning threads and the words that they read.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <pthread.h>
#include <string>
#include <vector>

#include "kernels/vgpu/api/tensor.hpp"
#include "kernels/vgpu/api/thread.hpp"
#include "kernels/vgpu/async_proxy.hpp"
#include "kernels/vgpu/fault.hpp"
#include "kernels/vgpu/fiber.hpp"
#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

class BlockRunner;

// The lanes of a warp meet at a shuffle, a vote, __syncwarp or a tensor core instruction.
//
// Each lane brings a request, and the last lane of the mask to arrive computes all answers. A
// meeting does not wait for lanes that have left the kernel or are beyond the end of the block.
enum class WarpOp : std::uint8_t { shuffle, vote, sync, together };

struct LaneRequest {
  std::uint64_t value = 0;   // shuffle: the value that others may read; vote: the predicate
  void* brought = nullptr;   // together: argument for the function
  unsigned from = 0;         // shuffle: the lane to read from; vote: receives the lanes that voted
  std::uint64_t answer = 0;  // shuffle: the value read; vote: the ballot
};

// A set of lanes that wait for each other. All of them passed the same mask.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;  // lanes
  WarpOp op{};
  Together together = nullptr;
  unsigned generation = 0;
  char order[2] = {0, 0};  // declares __syncwarp to ThreadSanitizer
};

struct Warp {
  unsigned present = 0;                // lanes that have not left the kernel
  std::array<Meeting, 32> meetings{};  // each is free while no lane has arrived
  unsigned open = 0;                   // meetings[0 .. open) have been used
};

// request(lane) returns a lane's LaneRequest.
template <class Request>
void answer(const Meeting& meeting, Request request) {
  std::uint64_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((meeting.arrived >> lane & 1U) != 0 && request(lane).value != 0) ballot |= 1ULL << lane;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((meeting.arrived >> lane & 1U) == 0) continue;
    LaneRequest& r = request(lane);
    if (meeting.op == WarpOp::vote) {
      r.answer = ballot;
      r.from = meeting.arrived;
    }
    if (meeting.op == WarpOp::shuffle)
      r.answer = (meeting.arrived >> r.from & 1U) != 0 ? request(r.from).value : ~0ULL;
  }
}

// Detects CUDA threads that never yield to others, because of an endless loop or a wait that reads
// through a plain or volatile pointer. A watchdog thread checks every OS thread that runs blocks.
// If no CUDA thread has begun or resumed on an OS thread for VGPU_DEADLINE_MS, the watchdog sends
// that thread a signal, whose handler reports the current position and ends the process.
class Watched {
 public:
  explicit Watched(BlockRunner& runner);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // Called whenever a thread of the block begins or resumes, so it must be cheap.
  void turn() {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void begin_block() { busy_.store(true, std::memory_order_relaxed); }
  void end_block() { busy_.store(false, std::memory_order_relaxed); }

 private:
  friend class Watchdog;
  BlockRunner& runner_;
  const pthread_t thread_ = ::pthread_self();
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> busy_{false};
  std::uint64_t seen_ = 0;       // turns_ at the watchdog's last check
  std::uint64_t unchanged_ = 0;  // ms for which turns_ has not changed
};

// A cp.async whose data has not arrived.
struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes;
  unsigned group;
};

struct Thread : ThreadView {
  enum class State : std::uint8_t {
    not_begun,
    running,
    barrier,
    mbarrier,
    warp,
    spinning,
    finished
  };
  struct Read {
    const void* address = nullptr;
    std::uint64_t value = 0;
  };
  State state = State::not_begun;
  std::uint8_t next_read = 0;
  std::uint16_t number = 0;  // linear index in the block
  Fiber* fiber = nullptr;
  Source where;               // the call in which the thread waits
  std::array<Read, 4> reads;  // the last atomic reads of different words
  LaneRequest lane;           // the thread's request at a meeting of the warp
  void* released = nullptr;   // to ThreadSanitizer: what the last release fence has released
  std::vector<AsyncCopy> copies;
  unsigned groups = 0;             // number of committed cp.async groups
  const void* mbarrier = nullptr;  // for which the thread sleeps
  bool multiplies_fenced = false;  // by wgmma.fence, since the thread last used its sums
};

class BlockRunner {
 public:
  static BlockRunner& mine();  // the runner of this OS thread
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void run(Grid& grid, unsigned share, std::uint64_t block_number);

  // For the running thread:
  Thread& self() { return *static_cast<Thread*>(current_thread); }
  int barrier(Combine combine, bool predicate, const Source& where);
  // Brings self().lane to the meeting of the mask's lanes and returns with its answer.
  void meet(WarpOp op, unsigned mask, const Source& where, Together together = nullptr);
  void spin(const Source& where);
  void sleep(const void* mbarrier, const Source& where);  // until wake()
  void wake(std::uint16_t thread);
  AsyncProxy& async() { return async_; }
  // The shared address (api/wgmma.hpp) of a pointer into the dynamic shared memory.
  [[nodiscard]] std::uint32_t shared_address(const void* p) const;
  void progress() { progress_ = true; }
  [[nodiscard]] Grid& grid() const { return *grid_; }
  std::uint64_t draw(std::uint64_t n) { return random_.below(n); }  // 0 to n - 1
  // For reports about the running thread. They may be written in a signal handler.
  [[nodiscard]] std::string describe_self() const;
  [[nodiscard]] int device() const;
  [[nodiscard]] bool beyond_dynamic_shared(const void* address) const;
  [[nodiscard]] bool in_stack_guard(const void* address) const { return fibers_.in_guard(address); }
  // Ends the process with a list of the threads and the places where they wait.
  [[noreturn]] void stuck(const char* what);

 private:
  static void live(Fiber* self);  // the body of every fiber, which runs in Quiet
  void run_one(Fiber* self);
  void suspend();  // the running thread waits until it is resumed
  // Returns the fiber to switch to: a ready thread's, or `free` (an idle fiber if `free` is null)
  // to begin a new thread, or the host's if all threads have finished.
  Fiber* choose(Fiber* free);
  Fiber* idle_fiber();
  void make_ready(std::uint16_t number) { ready_.push_back(number); }
  void close_meetings(unsigned warp);  // completes meetings whose lanes have all arrived
  void finish(Thread& thread);
  void pause();  // called when only spinning threads can run
  [[nodiscard]] std::string describe() const;

  static constexpr std::size_t kMostShared = 1 << 20;  // address space for dynamic shared memory

  FaultStack fault_stack_;
  Watched watched_{*this};
  FiberPool fibers_;
  std::vector<Fiber*> idle_, used_;
  std::vector<Thread> threads_;
  std::vector<std::uint16_t> order_;  // the order in which threads begin
  std::vector<std::uint16_t> ready_;
  std::size_t next_ready_ = 0;
  std::vector<std::uint16_t> spinning_;
  std::array<Warp, 32> warps_;
  AsyncProxy async_{*this};
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
