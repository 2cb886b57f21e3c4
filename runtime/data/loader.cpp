#include "runtime/data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

DataLoader::DataLoader(const Dataset& dataset, Sampler& sampler, DataLoaderOptions options)
    : dataset_(dataset), sampler_(sampler), options_(options) {
  const auto in_range = [](const char* what, std::int64_t value, std::int64_t low,
                           std::int64_t high) {
    require(value >= low && value <= high, std::string("DataLoader: ") + what + " must be from " +
                                               std::to_string(low) + " to " + std::to_string(high) +
                                               ", got " + std::to_string(value));
  };
  in_range("batch size", options.batch_size, 1, 1LL << 31);
  in_range("workers", options.workers, 0, 64);
  in_range("prefetch", options.prefetch, 1, 1024);
}

std::int64_t DataLoader::batches() const {
  const std::int64_t n = sampler_.size();
  return (options_.drop_last ? n : n + options_.batch_size - 1) / options_.batch_size;
}

DataLoader::Epoch DataLoader::epoch() {
  return {dataset_, sampler_.indices(), sampler_.epoch(), options_};
}

struct DataLoader::Epoch::Prefetch {
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr error;
    [[nodiscard]] bool ready() const { return batch.has_value() || error != nullptr; }
  };

  const Dataset& dataset;
  const std::int64_t epoch;
  const bool pin_memory;
  std::vector<std::vector<std::int64_t>> tasks;

  std::mutex mutex;                      // guards the members below, except workers
  std::condition_variable room, filled;  // for workers; for next()
  std::size_t taken = 0;                 // tasks returned by next(): the window starts here
  std::size_t started = 0;               // tasks that a worker has started
  bool stop = false;
  std::vector<Result> slots;

  std::vector<std::thread> workers;

  Prefetch(const Dataset& d, const std::vector<std::int64_t>& indices, std::int64_t number,
           const DataLoaderOptions& o)
      : dataset(d),
        epoch(number),
        pin_memory(o.pin_memory),
        slots(static_cast<std::size_t>(o.workers) * static_cast<std::size_t>(o.prefetch)) {
    const auto batch = static_cast<std::size_t>(o.batch_size);
    for (std::size_t i = 0; i < indices.size(); i += batch) {
      const std::size_t n = std::min(batch, indices.size() - i);
      if (n < batch && o.drop_last) break;
      const auto first = indices.begin() + static_cast<std::ptrdiff_t>(i);
      tasks.emplace_back(first, first + static_cast<std::ptrdiff_t>(n));
    }
    try {
      for (int w = 0; w < o.workers; ++w) workers.emplace_back([this] { work(); });
    } catch (...) {  // a thread could not start; the other threads must not outlive this object
      join();
      throw;
    }
  }
  ~Prefetch() { join(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  void join() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    room.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  [[nodiscard]] Batch fetch(std::size_t task) const {
    const Batch batch = dataset.get_in_epoch(tasks[task], epoch);
    return pin_memory ? batch.pin_memory() : batch;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      room.wait(lock,
                [&] { return stop || started == tasks.size() || started < taken + slots.size(); });
      if (stop || started == tasks.size()) return;
      const std::size_t task = started++;
      lock.unlock();
      Result result;
      try {
        result.batch = fetch(task);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      slots[task % slots.size()] = std::move(result);
      filled.notify_one();
    }
  }

  std::optional<Batch> next() {
    if (taken == tasks.size()) return std::nullopt;
    if (workers.empty()) return fetch(taken++);
    Result result;
    {
      std::unique_lock lock(mutex);
      Result& slot = slots[taken % slots.size()];
      filled.wait(lock, [&] { return slot.ready(); });
      result = std::exchange(slot, Result{});
      ++taken;
    }
    room.notify_one();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.batch);
  }
};

DataLoader::Epoch::Epoch(const Dataset& dataset, const std::vector<std::int64_t>& indices,
                         std::int64_t epoch, const DataLoaderOptions& options)
    : prefetch_(std::make_unique<Prefetch>(dataset, indices, epoch, options)) {}
DataLoader::Epoch::~Epoch() = default;
DataLoader::Epoch::Epoch(Epoch&&) noexcept = default;
DataLoader::Epoch& DataLoader::Epoch::operator=(Epoch&&) noexcept = default;

std::optional<Batch> DataLoader::Epoch::next() { return prefetch_->next(); }
std::int64_t DataLoader::Epoch::position() const {
  return static_cast<std::int64_t>(prefetch_->taken);
}

}  // namespace ringsmith
