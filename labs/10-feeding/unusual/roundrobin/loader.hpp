// Unusual and correct, and PyTorch's way: batch b belongs to worker b % workers, which has its own
// queue. For each batch that it takes, next() assigns one more to the next worker in turn.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>
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
      : indices_(std::move(indices)), fetch_(std::move(fetch)) {
    const auto batch = std::size_t(options.batch);
    for (std::size_t at = 0; at < indices_.size(); at += batch) {
      const std::span<const std::int64_t> rest = std::span(indices_).subspan(at);
      if (rest.size() < batch && options.drop_last) break;
      batches_.push_back(rest.first(std::min(batch, rest.size())));
    }
    for (int w = 0; w < options.workers; ++w) desks_.push_back(std::make_unique<Desk>());
    for (int i = 0; i < options.ahead; ++i) hand_out();
    for (auto& desk : desks_) desk->thread = std::jthread([this, &desk] { sit_at(*desk); });
  }
  ~Loader() {
    for (auto& desk : desks_) {
      const std::lock_guard lock(desk->mutex);
      desk->closed = true;
      desk->changed.notify_all();
    }
    for (auto& desk : desks_) desk->thread.join();
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] std::optional<Batch> next() {
    if (given_ == batches_.size()) return std::nullopt;
    Desk& desk = *desks_[given_++ % desks_.size()];
    std::unique_lock lock(desk.mutex);
    desk.changed.wait(lock, [&] { return !desk.done.empty(); });
    std::variant<Batch, std::exception_ptr> got = std::move(desk.done.front());
    desk.done.pop_front();
    lock.unlock();
    hand_out();
    if (auto* error = std::get_if<std::exception_ptr>(&got)) std::rethrow_exception(*error);
    return std::get<Batch>(std::move(got));
  }

 private:
  struct Desk {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::span<const std::int64_t>> wanted;
    std::deque<std::variant<Batch, std::exception_ptr>> done;
    bool closed = false;
    std::jthread thread;
  };
  void hand_out() {
    if (handed_ == batches_.size()) return;
    Desk& desk = *desks_[handed_ % desks_.size()];
    const std::lock_guard lock(desk.mutex);
    desk.wanted.push_back(batches_[handed_++]);
    desk.changed.notify_all();
  }
  void sit_at(Desk& desk) {
    for (;;) {
      std::unique_lock lock(desk.mutex);
      desk.changed.wait(lock, [&] { return desk.closed || !desk.wanted.empty(); });
      if (desk.closed) return;
      const auto ids = desk.wanted.front();
      desk.wanted.pop_front();
      lock.unlock();
      std::variant<Batch, std::exception_ptr> made;
      try {
        made = fetch_(ids);
      } catch (...) {
        made = std::current_exception();
      }
      lock.lock();
      desk.done.push_back(std::move(made));
      desk.changed.notify_all();
    }
  }

  std::vector<std::int64_t> indices_;
  Fetch fetch_;
  std::vector<std::span<const std::int64_t>> batches_;
  std::vector<std::unique_ptr<Desk>> desks_;
  std::size_t handed_ = 0, given_ = 0;
};

}  // namespace lab10
