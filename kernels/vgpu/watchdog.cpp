#include <algorithm>
#include <mutex>
#include <signal.h>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/fault.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

const int kSignal = SIGRTMIN + 7;

[[noreturn]] void report(const BlockRunner& runner, const std::string& line) {
  fatal(
      "a kernel runs forever without yielding to other threads (VGPU_DEADLINE_MS has passed): it "
      "does not end, or waits through a pointer that is not atomic\n  in " +
      runner.describe_self() + (line.empty() ? "" : ", at " + line));
}

void where_are_you(int, siginfo_t*, void* context) {
  if (active_runner == nullptr) return;  // the block has just ended
  if (!begin_last_words()) return;       // a fault, perhaps of this thread, is being reported
  report(*active_runner, describe_code(code_at(*static_cast<const ucontext_t*>(context))));
}

void sleep_ms(std::uint64_t ms) {
  const timespec time{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1'000'000)};
  ::nanosleep(&time, nullptr);
}

}  // namespace

class Watchdog {
 public:
  static Watchdog& get() {
    static auto* dog = new Watchdog;
    return *dog;
  }

  void add(Watched* w) {
    const std::scoped_lock lock(mutex_);
    all_.push_back(w);
  }
  void remove(Watched* w) {
    const std::scoped_lock lock(mutex_);
    std::erase(all_, w);
  }

 private:
  Watchdog() {
    struct sigaction action {};
    action.sa_sigaction = where_are_you;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(kSignal, &action, nullptr);
    std::thread([this] { watch(); }).detach();
  }

  void watch() {
    const Quiet quiet;
    const std::uint64_t deadline = Settings::get().deadline_ms;
    const std::uint64_t interval = std::clamp<std::uint64_t>(deadline / 8, 1, 1000);
    for (std::uint64_t spoken = 0;;) {
      sleep_ms(interval);
      if (last_words_begun()) {
        constexpr std::uint64_t kLongest_ms = 60'000;  // if addr2line hangs or a lock is held
        if ((spoken += interval) > kLongest_ms)
          fatal("the report of a fault did not finish in time");
        continue;
      }
      const std::scoped_lock lock(mutex_);
      for (Watched* w : all_) look(*w, interval, deadline);
    }
  }

  static void look(Watched& w, std::uint64_t interval, std::uint64_t deadline) {
    const std::uint64_t turns = w.turns_.load(std::memory_order_relaxed);
    if (!w.busy_.load(std::memory_order_relaxed) || turns != w.seen_) {
      w.seen_ = turns;
      w.unchanged_ = 0;
      return;
    }
    w.unchanged_ += interval;
    if (w.unchanged_ < deadline) return;
    ::pthread_kill(w.thread_, kSignal);
    // ThreadSanitizer delivers signals only at the next call, and an endless loop makes none.
    constexpr std::uint64_t kPatience_ms = 2000;
    sleep_ms(kPatience_ms);
    if (w.busy_.load(std::memory_order_relaxed) &&
        w.turns_.load(std::memory_order_relaxed) == turns && begin_last_words())
      report(w.runner_, "");
  }

  std::mutex mutex_;
  std::vector<Watched*> all_;
};

Watched::Watched(BlockRunner& runner) : runner_(runner) { Watchdog::get().add(this); }
Watched::~Watched() { Watchdog::get().remove(this); }

}  // namespace vgpu
