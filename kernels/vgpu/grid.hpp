// A launched grid hands out its blocks one by one, in a seeded order, to the threads that run it.
//
//   stream's worker --- takes blocks ---+
//   helper thread  ---- takes blocks ---+---> BlockRunner, one per OS thread, runs each to its end
//   helper thread  ---- takes blocks ---+
//
// A large grid is shared with helpers, up to VGPU_WORKERS threads in total (by default the number
// of cores). If a block spins, one more helper is started for the blocks that have not begun. Thus
// all blocks of a grid, up to about 1,024, run simultaneously if they must.
//
// Under ThreadSanitizer two blocks on one OS thread are ordered, because they share the memory of
// their __shared__ variables. Therefore the blocks are dealt out to several threads in turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/launch.hpp"
#include "kernels/vgpu/api/thread.hpp"

namespace vgpu {

class Queue;

// A cheap seeded order: i -> (scale * i + offset) mod n, with scale coprime to n.
class Permutation {
 public:
  Permutation() = default;
  Permutation(std::uint64_t n, std::uint64_t random);
  [[nodiscard]] std::uint64_t operator()(std::uint64_t i) const {
    return (scale_ * i + offset_) % n_;
  }
  // Calls visit(number) for all n numbers in the permuted order, without a division.
  template <class Visit>
  void each(Visit visit) const {
    std::uint64_t number = offset_;
    for (std::uint64_t i = 0; i < n_; ++i) {
      visit(number);
      number += scale_;
      if (number >= n_) number -= n_;
    }
  }

 private:
  std::uint64_t n_ = 1, scale_ = 1, offset_ = 0;
};

class Grid : public std::enable_shared_from_this<Grid> {
 public:
  Grid(Call call, dim3 grid, dim3 block, std::size_t shared_bytes, Queue& queue,
       std::uint64_t number);

  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  ~Grid();

  // Runs all blocks and returns when the last has ended.
  void run();
  // Returns a description for error messages: "kernel scale in stream 2 of device 0".
  [[nodiscard]] std::string describe() const;

  // For BlockRunner:
  // Returns the next block of this share, or nothing if all blocks of the share have begun.
  std::optional<std::uint64_t> take(unsigned share);
  void finished_one();
  // Called when a block spins. Starts a helper if some blocks of this share have not begun.
  void relieve(unsigned share);
  // One thread of each block of a cooperative launch: returns when all blocks have arrived.
  void meet(const Source& where);
  // For kernels that launch kernels: the stream of launches without a stream, and the streams for
  // whose work the grid's end waits.
  Queue* child_stream();
  void waits_for(Queue& stream);
  void wait_for_children();

  const Call call;
  const dim3 grid, block;
  const std::size_t shared_bytes;
  Queue& queue;
  const std::uint64_t number;  // of the launch; seeds the grid's random numbers
  bool cooperative = false;    // set before run()
  char begin = 0, end = 0;     // for the order of the CUDA threads in ThreadSanitizer (order.hpp)

 private:
  void serve(unsigned share);  // takes and runs blocks until none are left
  const std::uint64_t blocks_;
  const unsigned shares_;
  Permutation order_;
  std::vector<std::atomic<std::uint64_t>> next_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::uint64_t done_ = 0;
  std::vector<std::shared_ptr<Queue>> children_;
  std::shared_ptr<Queue> child_stream_;
  std::atomic<std::uint32_t> met_{0};   // blocks that have arrived at the current meeting
  std::atomic<std::uint32_t> turn_{0};  // meetings that have ended
};

// OS threads that help to run the blocks of grids, started as needed and kept.
class Helpers {
 public:
  // Returns the helpers for a stream. All streams share the same helpers, except under
  // ThreadSanitizer, where each stream has its own: two blocks on one OS thread count as ordered,
  // and blocks of two streams must not.
  static Helpers& lend();
  static void give_back(Helpers& helpers);

  // Runs the job on a helper, a new one if all are busy.
  void start(std::function<void()> job);
  // Runs the job if a helper is idle or another may be started (VGPU_WORKERS), else returns false.
  bool offer(std::function<void()> job);

 private:
  void push(std::function<void()> job);
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  int threads_ = 0;
  std::size_t waiting_ = 0;
};

}  // namespace vgpu
