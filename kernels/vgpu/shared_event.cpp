#include "kernels/vgpu/shared_event.hpp"

#include <cerrno>
#include <climits>
#include <linux/futex.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/guard_page.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

namespace {

constexpr timespec kLook{0, 100'000'000};  // how often a waiter looks whether the recorder lives
// A dead recorder's event never comes, but whoever has opened it may still record it anew: the
// program gets time to notice the death by itself and to release its streams.
constexpr int kLooksInVain = 20;

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, 0);
}

// Counters wrap round.
bool at_least(std::uint32_t reached, std::uint32_t number) {
  return static_cast<std::int32_t>(reached - number) >= 0;
}

}  // namespace

SharedEvents& SharedEvents::get() {
  static auto* events = new SharedEvents;
  return *events;
}

SharedEvents::SharedEvents() {
  file_ = ::memfd_create("vgpu-events", MFD_CLOEXEC);
  void* space = MAP_FAILED;
  if (file_ >= 0 && ::ftruncate(file_, kBytes) == 0)
    space = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (space == MAP_FAILED) fatal("no anonymous file for events between processes");
  all_ = static_cast<EventCounters*>(space);
}

std::shared_ptr<EventCounters> SharedEvents::make() {
  const std::scoped_lock lock(mutex_);
  EventCounters* c = nullptr;
  if (!free_.empty()) {
    c = free_.back();
    free_.pop_back();
  } else if (made_ < kBytes / sizeof(EventCounters)) {
    c = all_ + made_++;
  } else {
    return nullptr;
  }
  c->recorded = 0;
  c->reached = 0;
  c->exported = false;
  return {c, [this](EventCounters* counters) { take_back(counters); }};
}

void SharedEvents::take_back(EventCounters* counters) {
  if (counters->exported) return;
  const std::scoped_lock lock(mutex_);
  free_.push_back(counters);
}

std::shared_ptr<EventCounters> open_counters(int file, std::size_t index) {
  const std::size_t bytes = guard_page(), per_page = bytes / sizeof(EventCounters);
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                            static_cast<off_t>(index / per_page * bytes));
  if (page == MAP_FAILED) return nullptr;
  return {static_cast<EventCounters*>(page) + index % per_page,
          [page, bytes](EventCounters*) { ::munmap(page, bytes); }};
}

void SharedMoment::reach() {
  {
    const Loud loud;
    happens_before(counters_.get());
  }
  std::uint32_t before = counters_->reached.load(std::memory_order_relaxed);
  while (!at_least(before, number_) &&
         !counters_->reached.compare_exchange_weak(before, number_, std::memory_order_release)) {
  }
  futex(&counters_->reached, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedMoment::wait() {
  for (int in_vain = 0;;) {
    const std::uint32_t now = counters_->reached.load(std::memory_order_acquire);
    if (at_least(now, number_)) break;
    if (futex(&counters_->reached, FUTEX_WAIT, now, &kLook) == 0 || errno != ETIMEDOUT) continue;
    const std::int32_t recorder = counters_->recorder.load();
    if (::kill(recorder, 0) != 0 && errno == ESRCH &&
        !at_least(counters_->reached.load(std::memory_order_acquire), number_) &&
        ++in_vain == kLooksInVain)
      fatal("a wait for an event between processes will never end: process " +
            std::to_string(recorder) + ", which recorded it, has ended before it came to it");
  }
  const Loud loud;
  happens_after(counters_.get());
}

bool SharedMoment::reached() {
  if (!at_least(counters_->reached.load(std::memory_order_acquire), number_)) return false;
  const Loud loud;
  happens_after(counters_.get());
  return true;
}

}  // namespace vgpu
