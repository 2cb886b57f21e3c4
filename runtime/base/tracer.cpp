#include "runtime/base/tracer.hpp"

#include <algorithm>
#include <ctime>
#include <memory>
#include <mutex>

namespace ringsmith::trace {

namespace {

// One producer, one consumer. Counters only grow; slot = counter mod capacity. The release store of
// tail publishes the slot's contents, the release store of head hands the slot back.
class Ring {
 public:
  void push(const Event& event) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kRingEvents) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    slots_[tail % kRingEvents] = event;
    tail_.store(tail + 1, std::memory_order_release);
  }

  void pop_all(std::vector<Event>& out) {
    const std::uint64_t tail = tail_.load(std::memory_order_acquire);
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (; head != tail; ++head) out.push_back(slots_[head % kRingEvents]);
    head_.store(head, std::memory_order_release);
  }

  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // The producer's last word; a reader that sees true sees everything that was pushed.
  void end() { ended_.store(true, std::memory_order_release); }
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  // Not initialised: pages that are never used are never resident.
  std::unique_ptr<Event[]> slots_{new Event[kRingEvents]};
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> ended_{false};
};

struct Registry {
  std::mutex mutex;  // guards everything below, and makes drain() the one consumer
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<std::string> names;
  std::uint64_t dropped_by_ended_threads = 0;
};

// Never destroyed: threads may record until the very end of the process.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

struct Slot {
  std::shared_ptr<Ring> ring;
  std::int32_t thread = 0;

  Slot() : ring(std::make_shared<Ring>()) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    thread = static_cast<std::int32_t>(r.names.size());
    r.rings.push_back(ring);
    r.names.push_back("thread " + std::to_string(thread));
  }
  ~Slot() { ring->end(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
};

Slot& this_thread() {
  thread_local Slot slot;
  return slot;
}

}  // namespace

const char* name_of(Category category) {
  switch (category) {
    case Category::compute:
      return "compute";
    case Category::comm:
      return "comm";
    case Category::wait:
      return "wait";
    case Category::data:
      return "data";
    case Category::optim:
      return "optim";
    case Category::frame:
      return "frame";
    case Category::operation:
      return "operation";
  }
  return "?";
}

void enable(bool on) { detail::on.store(on, std::memory_order_relaxed); }

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

void record(const char* name, Category category, std::int64_t begin_ns, std::int64_t end_ns,
            Arg arg, std::int32_t track) {
  if (!enabled()) return;
  Slot& slot = this_thread();
  slot.ring->push(
      {name, begin_ns, end_ns, arg, track == kThisThread ? slot.thread : track, category});
}

std::int32_t add_track(const std::string& name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.names.push_back(name);
  return static_cast<std::int32_t>(r.names.size()) - 1;
}

void name_thread(const std::string& name) {
  const std::int32_t thread = this_thread().thread;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.names[static_cast<std::size_t>(thread)] = name;
}

std::vector<Event> drain() {
  std::vector<Event> out;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (auto& ring : r.rings) {
    const bool ended = ring->ended();  // asked first: what it pushed before is then taken below
    ring->pop_all(out);
    if (ended) {
      r.dropped_by_ended_threads += ring->dropped();
      ring.reset();
    }
  }
  r.rings.erase(std::remove(r.rings.begin(), r.rings.end(), nullptr), r.rings.end());
  std::stable_sort(out.begin(), out.end(),
                   [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
  return out;
}

std::vector<std::string> thread_names() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.names;
}

std::uint64_t dropped() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::uint64_t sum = r.dropped_by_ended_threads;
  for (const auto& ring : r.rings) sum += ring->dropped();
  return sum;
}

}  // namespace ringsmith::trace
