// Unusual and correct: no condition variable. A counting semaphore holds the permissions to begin a
// batch, a ticket counter selects the batch, and every batch has its own promise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <semaphore>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace lab10 {

struct LoaderOptions {
  std::int64_t batch = 1;
  int workers = 1;
  int ahead = 2;
  bool drop_last = false;
};

template <class Batch>
class Loader {
 public:
  using Fetch = std::function<Batch(std::span<const std::int64_t>)>;

  Loader(std::vector<std::int64_t> indices, LoaderOptions options, Fetch fetch)
      : indices_(std::move(indices)),
        options_(options),
        fetch_(std::move(fetch)),
        permissions_(options.ahead) {
    const std::int64_t n = std::int64_t(indices_.size());
    std::int64_t batches = n / options_.batch;
    if (!options_.drop_last && n % options_.batch != 0) ++batches;
    promises_.resize(std::size_t(batches));
    for (int w = 0; w < options_.workers; ++w)
      threads_.emplace_back([this] {
        for (;;) {
          permissions_.acquire();
          const std::size_t mine = ticket_++;
          if (stop_ || mine >= promises_.size()) return;
          fetch_into(mine);
        }
      });
  }
  ~Loader() {
    stop_ = true;
    permissions_.release(std::ptrdiff_t(threads_.size()));
    for (std::thread& thread : threads_) thread.join();
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] std::optional<Batch> next() {
    if (given_ == promises_.size()) return std::nullopt;
    std::future<Batch> batch = promises_[given_++].get_future();
    batch.wait();
    permissions_.release();
    return batch.get();
  }

 private:
  void fetch_into(std::size_t mine) {
    const std::size_t first = mine * std::size_t(options_.batch);
    const std::size_t last = std::min(first + std::size_t(options_.batch), indices_.size());
    try {
      promises_[mine].set_value(fetch_({indices_.data() + first, indices_.data() + last}));
    } catch (...) {
      promises_[mine].set_exception(std::current_exception());
    }
  }

  std::vector<std::int64_t> indices_;
  LoaderOptions options_;
  Fetch fetch_;
  std::counting_semaphore<> permissions_;
  std::atomic<std::size_t> ticket_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::promise<Batch>> promises_;
  std::vector<std::thread> threads_;
  std::size_t given_ = 0;
};

}  // namespace lab10
