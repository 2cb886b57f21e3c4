#include "runtime/device/stream.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/device/memory.hpp"
#include "runtime/device/transfer.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using ringsmith::test::Gate;

namespace {

const Device kDevice = Device::cuda(0);

// A byte of host memory that a stream sets once all operations queued before are complete. A memset
// sets it, because the host functions of all streams wait for each other: one that waits at a Gate
// would delay this flag.
class Flag {
 public:
  explicit Flag(const Stream& stream) : byte_(Bytes(1)) {
    *byte_.data() = std::byte{0};
    cuda_check(cudaMemsetAsync(byte_.data(), 1, 1, stream.get()));
  }
  [[nodiscard]] bool raised() const {
    return *static_cast<const volatile std::byte*>(byte_.data()) != std::byte{0};
  }

 private:
  PinnedBlock byte_;
};

}  // namespace

TEST_CASE("the compute stream is one for all threads; a guard changes it for its own") {
  const Stream compute = Stream::compute(kDevice);
  CHECK(compute.defined());
  CHECK(compute.device() == kDevice);
  CHECK(Stream::current(kDevice) == compute);
  const Stream own = Stream::create(kDevice);
  CHECK(own != compute);
  {
    const StreamGuard guard(own);
    CHECK(Stream::current(kDevice) == own);
    {
      const StreamGuard nothing{Stream()};
      const StreamGuard inner(compute);
      CHECK(Stream::current(kDevice) == compute);
    }
    CHECK(Stream::current(kDevice) == own);
    std::thread([&] {
      if (Stream::current(kDevice) != compute) throw Error("a guard reached another thread");
    }).join();
  }
  CHECK(Stream::current(kDevice) == compute);
  CHECK_THROWS_AS(Stream::current(Device::cpu()), UsageError);
  CHECK_THROWS_AS(Stream::compute(Device::cuda(999)), UsageError);
  CHECK_THROWS_AS(Stream().synchronize(), UsageError);
}

TEST_CASE("other threads' queries and allocations do not end a capture") {
  const Stream captured = Stream::create(kDevice), other = Stream::create(kDevice);
  const Event event = Event::record(other);
  cuda_check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal));
  std::string failed;
  std::thread([&] {
    try {  // as the threads of a group do
      const DeviceGuard guard(kDevice);
      while (!event.has_happened()) std::this_thread::yield();
      (void)other.is_idle();
      event.synchronize();
      other.synchronize();
      const PinnedBlock pinned(Bytes(100'000));
      std::byte* const memory = device_allocator::allocate(kDevice, Bytes(12'345'678));
      device_allocator::free(kDevice, memory);
      device_allocator::release_cached(kDevice);
    } catch (const Error& error) {
      failed = error.what();
    }
  }).join();
  CHECK(failed.empty());
  cudaStreamCaptureStatus status{};
  cuda_check(cudaStreamIsCapturing(captured.get(), &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  // This thread's own query would ask about work that has only been recorded.
  CHECK_THROWS_WITH(event.has_happened(), ContainsSubstring("cudaErrorStreamCaptureUnsupported"));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
}

TEST_CASE("created streams are their holder's alone, and are used again afterwards") {
  const CUstream_st* first = nullptr;
  {
    const Stream a = Stream::create(kDevice), b = Stream::create(kDevice);
    CHECK(a.get() != b.get());
    first = a.get();
    const Stream copy = a;
    CHECK(copy == a);
  }
  const Stream c = Stream::create(kDevice), d = Stream::create(kDevice);
  CHECK((c.get() == first || d.get() == first));
}

TEST_CASE("a stream has the priority it was created with, a used one too") {
  int least = 0, greatest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(greatest < least);  // lower numbers have priority
  for (int turn = 0; turn < 2; ++turn) {
    const Stream normal = Stream::create(kDevice),
                 high = Stream::create(kDevice, Stream::Priority::high);
    int priority = 0;
    cuda_check(cudaStreamGetPriority(normal.get(), &priority));
    CHECK(priority == least);
    cuda_check(cudaStreamGetPriority(high.get(), &priority));
    CHECK(priority == greatest);
    cuda_check(cudaStreamGetPriority(Stream::compute(kDevice).get(), &priority));
    CHECK(priority == least);
  }
}

TEST_CASE("a stream waits for an event, not for the rest of the other stream") {
  const Stream a = Stream::create(kDevice), b = Stream::create(kDevice);
  Gate before(a);
  const Event event = Event::record(a);
  Gate after(a);
  b.wait(event);
  const Flag done(b);
  CHECK_FALSE(event.has_happened());
  CHECK_FALSE(b.is_idle());
  CHECK_FALSE(done.raised());
  before.open();
  b.synchronize();  // would hang if b waited for all of a
  CHECK(done.raised());
  CHECK(event.has_happened());
  CHECK(b.is_idle());
  CHECK_FALSE(a.is_idle());
  after.open();
  a.synchronize();
  CHECK(a.is_idle());
}

TEST_CASE("a stream waits for all that another holds, also across devices") {
  for (const int other : {0, device_count() - 1}) {
    const Stream a = Stream::create(kDevice), b = Stream::create(Device::cuda(other));
    Gate gate(a);
    b.wait(a);
    const Flag done(b);
    CHECK_FALSE(b.is_idle());
    CHECK_FALSE(done.raised());
    gate.open();
    b.synchronize();
    CHECK(done.raised());
  }
}

TEST_CASE("an event recorded again does not move the waits queued for it before") {
  const Stream a = Stream::create(kDevice), b = Stream::create(kDevice);
  { b.wait(Event::record(a)); }  // reached immediately, so the handle returns to the pool
  Gate gate(a);
  const Event later = Event::record(a);  // most likely the same handle
  b.synchronize();                       // must not wait for the gate
  CHECK_FALSE(later.has_happened());
  gate.open();
  later.synchronize();
  CHECK(later.has_happened());
}

TEST_CASE("timed events tell how long a stretch of a stream took") {
  const Stream a = Stream::create(kDevice);
  const Event from = Event::record(a, Event::Timing::on);
  from.synchronize();  // on a busy machine the stream may be late
  {
    Gate gate(a);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Event to = Event::record(a, Event::Timing::on);
  to.synchronize();
  CHECK(seconds_between(from, to) >= 0.015);
  CHECK_THROWS_AS(seconds_between(from, Event()), UsageError);
  CHECK(Event().has_happened());
}
