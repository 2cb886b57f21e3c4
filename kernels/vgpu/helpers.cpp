#include "kernels/vgpu/helpers.hpp"

#include <string>
#include <thread>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {
constexpr int kMostThreads = 1024;  // blocks that can be resident at once
}

Helpers& Helpers::shared() {
  static auto* helpers = new Helpers;  // never destroyed: its threads run until the process ends
  return *helpers;
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
