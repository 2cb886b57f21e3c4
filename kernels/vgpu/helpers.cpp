#include "kernels/vgpu/helpers.hpp"

#include <string>
#include <thread>
#include <vector>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

constexpr int kMostThreads = 1024;  // blocks that can be resident at once

// Never destroyed: their threads run until the process ends.
struct All {
  std::mutex mutex;
  std::vector<Helpers*> idle;
  Helpers shared;
};
All& all() {
  static auto* one = new All;
  return *one;
}

}  // namespace

Helpers& Helpers::lend() {
  if (!kTsan) return all().shared;
  const std::scoped_lock lock(all().mutex);
  if (all().idle.empty()) return *new Helpers;
  Helpers* helpers = all().idle.back();
  all().idle.pop_back();
  return *helpers;
}

void Helpers::give_back(Helpers& helpers) {
  if (!kTsan) return;
  const std::scoped_lock lock(all().mutex);
  all().idle.push_back(&helpers);
}

void Helpers::start(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  push(std::move(job));
}

bool Helpers::offer(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  if (jobs_.size() >= waiting_ && threads_ >= Settings::get().workers - 1) return false;
  push(std::move(job));
  return true;
}

void Helpers::push(std::function<void()> job) {
  jobs_.push_back(std::move(job));
  if (jobs_.size() <= waiting_) {
    wake_.notify_one();
    return;
  }
  if (threads_ == kMostThreads)
    fatal("more than " + std::to_string(kMostThreads) +
          " blocks wait for each other: a grid that needs all its blocks at once must be smaller");
  ++threads_;
  std::thread([this] { work(); }).detach();
}

void Helpers::work() {
  const Quiet quiet;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (jobs_.empty()) {
      ++waiting_;
      wake_.wait(lock);
      --waiting_;
    }
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace vgpu
