// Lab 10, part 2: a loader that fetches batches while the training step runs.
//
//   batches   0 1 2 3 | 4 5 6 7 | 8 9 ...     4 .. 7 are begun or ready: `ahead` = 4 of them
//             given   |  ahead  | not begun   7 may be ready before 4; next() gives 4
//
// Several threads fetch. Their speeds must change neither the batches that are given nor their
// order, so that two training runs with the same seed are the same.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab10 {

struct LoaderOptions {
  std::int64_t batch = 1;  // samples per batch
  int workers = 1;         // threads that fetch: at most this many fetches simultaneously
  int ahead = 2;           // batches that may be begun but not yet given; at least `workers`
  bool drop_last = false;  // leave out a last batch that is not full
};

// One pass over a sampler's indices. Batch is movable; it may be too large to copy. The constructor
// starts the workers, which begin to fetch immediately; one thread calls next().
template <class Batch>
class Loader {
 public:
  // Several workers call fetch simultaneously. If it throws for a batch, the next() that would have
  // returned this batch throws the exception; the next() after it returns the following batch.
  using Fetch = std::function<Batch(std::span<const std::int64_t>)>;

  // Task 5.
  Loader(std::vector<std::int64_t> indices, LoaderOptions options, Fetch fetch)
#ifdef SOLUTION
      : indices_(std::move(indices)),
        options_(options),
        fetch_(std::move(fetch)),
        slots_(static_cast<std::size_t>(options.ahead)) {
    const auto batch = static_cast<std::size_t>(options_.batch);
    batches_ = (indices_.size() + (options_.drop_last ? 0 : batch - 1)) / batch;
    for (int w = 0; w < options_.workers; ++w) workers_.emplace_back([this] { work(); });
  }
#else
  {
    (void)indices, (void)options, (void)fetch;
    kit::todo("task 5, Loader");
  }
#endif

  // Task 6. A loader may be destroyed mid-epoch. When the destructor returns, no thread calls fetch
  // any more. Batches that had not been started are not fetched.
  ~Loader() {
#ifdef SOLUTION
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
#endif
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Task 5. Returns the batches in the sampler's order. After the last batch, returns nullopt,
  // however often it is called.
  [[nodiscard]] std::optional<Batch> next() {
#ifdef SOLUTION
    if (given_ == batches_) return std::nullopt;
    Slot taken;
    {
      std::unique_lock lock(mutex_);
      Slot& slot = slots_[given_ % slots_.size()];
      filled_.wait(lock, [&] { return slot.batch.has_value() || slot.error; });
      taken = std::exchange(slot, Slot{});
      ++given_;
    }
    room_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
#else
    kit::todo("task 5, Loader::next");
#endif
  }

 private:
#ifdef SOLUTION
  struct Slot {  // batch b is in slot b % ahead from the time it is ready until it is given
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock,
                 [&] { return stop_ || begun_ == batches_ || begun_ < given_ + slots_.size(); });
      if (stop_ || begun_ == batches_) return;
      const std::size_t mine = begun_++;
      lock.unlock();
      Slot made;
      try {
        const auto batch = static_cast<std::size_t>(options_.batch);
        const std::size_t first = mine * batch;
        made.batch =
            fetch_(std::span(indices_).subspan(first, std::min(batch, indices_.size() - first)));
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      slots_[mine % slots_.size()] = std::move(made);
      filled_.notify_one();
    }
  }

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  Fetch fetch_;
  std::size_t batches_ = 0;

  std::mutex mutex_;  // guards begun_, stop_, slots_, and given_, which only next() changes
  std::condition_variable room_, filled_;
  std::size_t begun_ = 0, given_ = 0;
  bool stop_ = false;
  std::vector<Slot> slots_;
  std::vector<std::thread> workers_;
#endif
};

}  // namespace lab10
