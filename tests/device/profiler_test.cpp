// Tests to which operations the profiler attributes time and work.
#include "runtime/device/profiler.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "runtime/base/tracer.hpp"
#include "runtime/device/cuda_check.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using profile::KernelScope;
using profile::Operation;
using profile::Row;

namespace {

constexpr std::int64_t kMs = 1'000'000;

struct Profiling {  // is process-wide, so each test enables it and discards old rows
  Profiling() {
    (void)profile::take_rows();
    (void)trace::drain();
    trace::enable(true);
    profile::enable(true);
  }
  ~Profiling() {
    profile::enable(false);
    trace::enable(false);
    (void)profile::take_rows();
    (void)trace::drain();
  }
};

void work_for(std::int64_t ms) {
  const std::int64_t end = trace::now_ns() + ms * kMs;
  while (trace::now_ns() < end) {
  }
}

void kernel(const char* name, Device device, double flop, double bytes, std::int64_t ms = 0) {
  KernelScope scope;
  scope.begin(name, device, {flop, bytes});
  work_for(ms);
}

Row row(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& r : rows)
    if (r.name == name) return r;
  FAIL("no row '" << name << "'");
  return {};
}

}  // namespace

TEST_CASE("off, nothing is counted, also of an operation that was off when it began",
          "[profiler]") {
  (void)profile::take_rows();
  {
    const Operation early("early");
    profile::enable(true);
  }
  profile::enable(false);
  const Operation late("late");
  CHECK(profile::take_rows().empty());
}

TEST_CASE("the work of kernels counts for the innermost operation, and its time for no outer one",
          "[profiler]") {
  const Profiling on;
  const std::int64_t begin = trace::now_ns();
  for (int i = 0; i < 2; ++i) {
    const Operation outer("outer");
    kernel("product", Device::cpu(), 100, 8, 2);
    {
      const Operation inner("inner");
      kernel("sum", Device::cpu(), 7, 3, 20);
    }
    kernel("product", Device::cpu(), 100, 8);
  }
  const std::int64_t both = trace::now_ns() - begin;
  kernel("adam", Device::cpu(), 5, 1, 1);
  const auto rows = profile::take_rows();
  REQUIRE(rows.size() == 3);
  CHECK(std::ranges::is_sorted(rows, std::greater(), &Row::host_ns));
  CHECK(row(rows, "outer").calls == 2);
  CHECK(row(rows, "outer").work.flop == 400);
  CHECK(row(rows, "outer").work.bytes == 32);
  CHECK(row(rows, "inner").work.flop == 14);
  CHECK(row(rows, "inner").host_ns >= 40 * kMs);
  CHECK(row(rows, "outer").host_ns >= 4 * kMs);
  CHECK(row(rows, "outer").host_ns + row(rows, "inner").host_ns <= both);
  CHECK(row(rows, "adam").calls == 1);
  CHECK(row(rows, "adam").work.flop == 5);
  CHECK(profile::take_rows().empty());
}

TEST_CASE("each thread has its own innermost operation; their rows are added", "[profiler]") {
  const Profiling on;
  const Operation here("here");
  std::thread([] {
    const Operation there("there");
    kernel("sum", Device::cpu(), 1, 0);
  }).join();
  std::thread([] { kernel("alone", Device::cpu(), 1, 0); }).join();
  kernel("sum", Device::cpu(), 1, 0);
  const auto rows = profile::take_rows();
  CHECK(row(rows, "there").work.flop == 1);
  CHECK(row(rows, "alone").calls == 1);
}

TEST_CASE("operations are spans that take no part in a step's arithmetic", "[profiler]") {
  const Profiling on;
  {
    const Operation operation("product");
    kernel("product", Device::cpu(), 64, 8, 1);
  }
  const auto events = trace::drain();
  REQUIRE(events.size() == 1);
  CHECK(std::strcmp(events[0].name, "product") == 0);
  CHECK(events[0].category == trace::Category::operation);
  CHECK(events[0].end_ns - events[0].begin_ns >= kMs);
  CHECK(std::strcmp(events[0].arg.name, "flop") == 0);
  CHECK(events[0].arg.value == 64);
}

TEST_CASE("on a GPU the time is the kernels' there, not the host's; a track of its own shows it",
          "[profiler]") {
  const Device gpu = Device::cuda(0);
  const Profiling on;
  const auto sleep_there = [&](std::int64_t ms) {  // a host function keeps the stream busy
    static std::int64_t time = 0;
    time = ms;
    cuda_check(cudaLaunchHostFunc(
        Stream::current(gpu).get(), [](void* t) { work_for(*static_cast<std::int64_t*>(t)); },
        &time));
  };
  synchronize(gpu);
  const std::int64_t begin = trace::now_ns();
  {
    const Operation operation("slow there");
    {
      KernelScope scope;
      scope.begin("kernel", gpu, {1000, 10});
      sleep_there(30);
    }
    kernel("kernel", gpu, 1, 1);
  }
  const std::int64_t queued = trace::now_ns();
  synchronize(gpu);
  const std::int64_t end = trace::now_ns();
  profile::settle();
  const auto events = trace::drain();
  const Row slow = row(profile::take_rows(), "slow there");
  CHECK(slow.calls == 1);
  CHECK(slow.work.flop == 1001);
  CHECK(slow.device_ns >= 29 * kMs);
  CHECK(slow.device_ns <= end - begin);
  CHECK(slow.host_ns <= queued - begin);

  std::int64_t there = 0;
  for (const trace::FinishedSpan& e : events) {
    if (trace::thread_names().at(static_cast<std::size_t>(e.thread)) != "cuda:0 operations")
      continue;
    there += e.end_ns - e.begin_ns;
    // With a margin, because the host's clock may be read late on a busy machine.
    CHECK(e.begin_ns >= begin - 5 * kMs);
    CHECK(e.end_ns <= end + 5 * kMs);
  }
  CHECK(there == slow.device_ns);
}
