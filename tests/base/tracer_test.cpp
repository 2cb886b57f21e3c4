#include "runtime/base/tracer.hpp"

#include <malloc.h>
#include <thread>

#include "tests/support/catch.hpp"

using namespace ringsmith;
using trace::Category;

namespace {
struct On {  // the tracer is process-wide, so each test enables it with empty rings
  On() {
    (void)trace::drain();
    trace::enable(true);
  }
  ~On() {
    trace::enable(false);
    (void)trace::drain();
  }
};
}  // namespace

TEST_CASE("a span that was off when it began is never recorded", "[tracer]") {
  (void)trace::drain();
  {
    const trace::Span span("early", Category::compute);
    trace::enable(true);
  }
  trace::enable(false);
  REQUIRE(trace::drain().empty());
}

TEST_CASE("spans of all threads come out once, ordered, with their thread and argument",
          "[tracer]") {
  const On on;
  const std::int64_t before = trace::now_ns();
  {
    const trace::Span outer("outer", Category::compute, {"bytes", 42});
    std::thread([] {
      trace::name_thread("helper");
      const trace::Span inner("inner", Category::comm);
    }).join();
  }
  const auto events = trace::drain();
  REQUIRE(events.size() == 2);
  REQUIRE(std::string(events[0].name) == "outer");
  REQUIRE(std::string(events[1].name) == "inner");
  REQUIRE(events[0].arg.value == 42);
  REQUIRE(events[0].thread != events[1].thread);
  REQUIRE(trace::thread_names().at(static_cast<std::size_t>(events[1].thread)) == "helper");
  REQUIRE(before <= events[0].begin_ns);
  REQUIRE(events[0].begin_ns <= events[1].begin_ns);
  REQUIRE(events[1].end_ns <= events[0].end_ns);
  REQUIRE(trace::drain().empty());
}

TEST_CASE("a full ring drops the newest spans, counts them, and works again after a drain",
          "[tracer]") {
  const On on;
  const std::uint64_t lost = trace::dropped();
  const auto n = static_cast<std::int64_t>(trace::kRingEvents);
  for (std::int64_t i = 0; i < n + 3; ++i) trace::record("x", Category::data, i, i + 1);
  REQUIRE(trace::dropped() == lost + 3);
  const auto events = trace::drain();
  REQUIRE(static_cast<std::int64_t>(events.size()) == n);
  REQUIRE(events.back().begin_ns == n - 1);
  trace::record("x", Category::data, 7, 8);
  REQUIRE(trace::drain().size() == 1);
}

TEST_CASE("nothing is lost or torn while threads record and another drains", "[tracer]") {
  const On on;
  constexpr int kThreads = 4, kEach = 20'000;
  const std::uint64_t lost = trace::dropped();
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) trace::record("x", Category::comm, i, 2 * i, {"i", 3 * i});
      running.fetch_sub(1);
    });
  std::uint64_t seen = 0;
  const auto take = [&] {
    for (const auto& e : trace::drain()) {
      REQUIRE(e.end_ns == 2 * e.begin_ns);
      REQUIRE(e.arg.value == 3 * e.begin_ns);
      ++seen;
    }
  };
  while (running.load() > 0) take();
  for (auto& t : threads) t.join();
  take();
  REQUIRE(seen + (trace::dropped() - lost) == std::uint64_t{kThreads} * kEach);
}

TEST_CASE("threads that come and go leave nothing behind, traced or not", "[tracer]") {
  const auto in_use = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const auto rounds = [](int n) {
    for (int i = 0; i < n; ++i)
      std::thread([&] {
        trace::name_thread(i % 3 == 0 ? "communication, with a name on the heap" : "checkpoints");
        if (i % 3 == 2) return;
        const trace::Span span("x", Category::comm);
      }).join();
  };
  for (const bool traced : {false, true}) {
    CAPTURE(traced);
    trace::enable(traced);
    const auto some = [&] {
      rounds(30);
      if (traced) REQUIRE(trace::drain().size() == 20);
    };
    some();  // the first threads allocate memory that later threads reuse
    some();
    const std::size_t names = trace::thread_names().size(), before = in_use();
    for (int i = 0; i < 20; ++i) some();
    CHECK(in_use() <= before + 65536);  // one ring is 390 KiB
    CHECK(trace::thread_names().size() == names);
    trace::enable(false);
  }
}
