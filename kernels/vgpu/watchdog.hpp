// Kernels that never give another thread a turn: a loop without end, or a wait that reads through a
// plain or volatile pointer. A thread of the emulator looks at every OS thread that runs blocks;
// one on which nothing has begun, waited or ended for VGPU_DEADLINE_MS gets a signal, whose handler
// says where it is, and the process ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <pthread.h>

namespace vgpu {

class BlockRunner;

class Watched {
 public:
  explicit Watched(BlockRunner& runner);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // A thread of the block has begun, waits or has ended. Cheap.
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
  std::uint64_t seen_ = 0;       // the watchdog's: turns when it last looked,
  std::uint64_t unchanged_ = 0;  // and for how many ms they have been the same
};

}  // namespace vgpu
