#include "runtime/base/tracer.hpp"

#include <algorithm>
#include <ctime>
#include <memory>
#include <mutex>

namespace ringsmith::trace {

namespace {

// The counters only grow; slot = counter mod capacity. The release store of tail publishes the
// slot's contents; the release store of head frees the slot.
class Ring {
 public:
  void push(const FinishedSpan& event) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kRingEvents) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    slots_[tail % kRingEvents] = event;
    tail_.store(tail + 1, std::memory_order_release);
  }

  void pop_all(std::vector<FinishedSpan>& out) {
    const std::uint64_t tail = tail_.load(std::memory_order_acquire);
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (; head != tail; ++head) out.push_back(slots_[head % kRingEvents]);
    head_.store(head, std::memory_order_release);
  }

  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Must be the producer's last call. A reader that gets true from ended() also sees everything
  // that was pushed.
  void end() { ended_.store(true, std::memory_order_release); }
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  // Not initialised: unused pages never become resident.
  std::unique_ptr<FinishedSpan[]> slots_{new FinishedSpan[kRingEvents]};
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> ended_{false};
};

struct Producer {
  std::shared_ptr<Ring> ring;
  std::int32_t thread;
};

struct Registry {
  std::mutex mutex;  // guards the members below, and serialises drain()
  std::vector<Producer> producers;
  std::vector<std::string> names;
  // Numbers of ended threads whose events have all been drained. Threads of the same name reuse
  // these numbers, so any number of threads may run one after another.
  std::vector<std::int32_t> free;
  std::uint64_t dropped_by_ended_threads = 0;

  std::int32_t number_for(const std::string& name) {
    const auto again = std::ranges::find_if(free, [&](std::int32_t thread) {
      const std::string& had = names[static_cast<std::size_t>(thread)];
      return had == (name.empty() ? default_name(thread) : name);
    });
    if (again != free.end()) {
      const std::int32_t thread = *again;
      free.erase(again);
      return thread;
    }
    const auto thread = static_cast<std::int32_t>(names.size());
    names.push_back(name.empty() ? default_name(thread) : name);
    return thread;
  }
  static std::string default_name(std::int32_t thread) {
    return "thread " + std::to_string(thread);
  }
};

// Never destroyed: threads may record until the end of the process.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

// A thread gets its number and its ring with its first event.
struct Self {
  std::string name;  // empty: the default
  std::shared_ptr<Ring> ring;
  std::int32_t thread = 0;

  Self() = default;
  ~Self() {
    if (ring) ring->end();
  }
  Self(const Self&) = delete;
  Self& operator=(const Self&) = delete;

  void take_part() {
    ring = std::make_shared<Ring>();
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    thread = r.number_for(name);
    r.producers.push_back({ring, thread});
  }
};

Self& this_thread() {
  thread_local Self self;
  return self;
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
  Self& self = this_thread();
  if (!self.ring) self.take_part();
  self.ring->push(
      {name, begin_ns, end_ns, arg, track == kThisThread ? self.thread : track, category});
}

std::int32_t add_track(const std::string& name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.names.push_back(name);
  return static_cast<std::int32_t>(r.names.size()) - 1;
}

void name_thread(const std::string& name) {
  Self& self = this_thread();
  self.name = name;
  if (!self.ring) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.names[static_cast<std::size_t>(self.thread)] = name;
}

std::vector<FinishedSpan> drain() {
  std::vector<FinishedSpan> out;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::erase_if(r.producers, [&](const Producer& p) {
    const bool ended = p.ring->ended();  // read first, so that pop_all() misses no event
    p.ring->pop_all(out);
    if (!ended) return false;
    r.dropped_by_ended_threads += p.ring->dropped();
    r.free.push_back(p.thread);
    return true;
  });
  std::stable_sort(out.begin(), out.end(), [](const FinishedSpan& a, const FinishedSpan& b) {
    return a.begin_ns < b.begin_ns;
  });
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
  for (const Producer& p : r.producers) sum += p.ring->dropped();
  return sum;
}

}  // namespace ringsmith::trace
