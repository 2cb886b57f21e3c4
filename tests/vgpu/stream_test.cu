// Tests streams and events of the emulator: asynchrony, order, and time.
#include <atomic>
#include <chrono>
#include <cuda/atomic>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace std::chrono_literals;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

__global__ void set(int* x, int value) { *x = value; }
__global__ void add(int* x, const int* y) { *x += *y; }
__global__ void sleep_ms(int ms) {
  for (int i = 0; i < ms * 10; ++i) __nanosleep(100'000);
}
__global__ void wait_until(int* flag, int value) {
  cuda::atomic_ref<int, cuda::thread_scope_system> f(*flag);
  while (f.load(cuda::memory_order_acquire) != value) __nanosleep(100);
}

// Pinned memory, which the host and devices share.
class Flag {
 public:
  Flag() {
    cuda_check(cudaHostAlloc(&flag_, sizeof(int), cudaHostAllocMapped));
    *flag_ = 0;
  }
  ~Flag() { (void)cudaFreeHost(flag_); }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;
  [[nodiscard]] int* get() const { return flag_; }
  void raise() const {
    cuda::atomic_ref<int, cuda::thread_scope_system>(*flag_).store(1, cuda::memory_order_release);
  }

 private:
  int* flag_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    cuda_check(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

TEST_CASE("a launch returns before its kernel has run; query and synchronize tell when it has") {
  TestStream stream;
  const Flag flag;
  launch(wait_until, 1, 1, 0, stream.get(), flag.get(), 1);
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  flag.raise();
  stream.synchronize();
  CHECK(cudaStreamQuery(stream.get()) == cudaSuccess);
}

TEST_CASE("operations of one stream run in order") {
  TestStream stream;
  DeviceArray<int> x(1), y(std::vector<int>{1}, stream.get());
  launch(set, 1, 1, 0, stream.get(), x.data(), 0);
  for (int i = 0; i < 200; ++i)
    launch(add, 1, 1, 0, stream.get(), x.data(), static_cast<const int*>(y.data()));
  CHECK(x.host(stream.get())[0] == 200);
}

TEST_CASE("streams run at the same time: a kernel of one releases the kernel of another") {
  TestStream first, second;
  DeviceArray<int> flag(std::vector<int>{0}, first.get());
  launch(wait_until, 1, 1, 0, first.get(), flag.data(), 7);
  launch(set, 1, 1, 0, second.get(), flag.data(), 7);
  first.synchronize();  // the other kernel has stored, but its stream may not have recorded its end
  CHECK(flag.host(second.get())[0] == 7);
}

TEST_CASE("a stream that waits for an event sees what came before it") {
  TestStream first, second;
  const Event written(cudaEventDisableTiming);
  DeviceArray<int> x(std::vector<int>{0}, first.get()), y(std::vector<int>{0}, first.get());
  for (int i = 0; i < 100; ++i) {
    launch(set, 1, 1, 0, first.get(), x.data(), i);
    cuda_check(cudaEventRecord(written.get(), first.get()));
    cuda_check(cudaStreamWaitEvent(second.get(), written.get()));
    launch(add, 1, 1, 0, second.get(), y.data(), static_cast<const int*>(x.data()));
    second.synchronize();
  }
  CHECK(y.host(second.get())[0] == 99 * 100 / 2);
}

TEST_CASE("an event stands for its last record when the wait is called") {
  TestStream busy, other;
  const Event event(cudaEventDisableTiming);
  const Flag flag;
  cuda_check(cudaStreamWaitEvent(other.get(), event.get()));  // never recorded: no wait
  other.synchronize();
  CHECK(cudaEventQuery(event.get()) == cudaSuccess);
  cuda_check(cudaEventRecord(event.get(), other.get()));
  cuda_check(cudaStreamWaitEvent(busy.get(), event.get()));
  busy.synchronize();
  launch(wait_until, 1, 1, 0, other.get(), flag.get(), 1);
  cuda_check(cudaEventRecord(event.get(), other.get()));
  CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
  flag.raise();
  cuda_check(cudaEventSynchronize(event.get()));
  CHECK(cudaEventQuery(event.get()) == cudaSuccess);
}

TEST_CASE("an event that is destroyed before a stream has come to it disturbs no later event") {
  TestStream first, second;
  const Flag go_first, go_second;
  constexpr unsigned kShared = cudaEventDisableTiming | cudaEventInterprocess;
  cudaEvent_t early = nullptr;
  cuda_check(cudaEventCreateWithFlags(&early, kShared));
  launch(wait_until, 1, 1, 0, first.get(), go_first.get(), 1);
  cuda_check(cudaEventRecord(early, first.get()));
  cuda_check(cudaEventDestroy(early));
  const Event late(kShared);
  launch(wait_until, 1, 1, 0, second.get(), go_second.get(), 1);
  cuda_check(cudaEventRecord(late.get(), second.get()));
  go_first.raise();
  first.synchronize();
  CHECK(cudaEventQuery(late.get()) == cudaErrorNotReady);
  go_second.raise();
  second.synchronize();
  CHECK(cudaEventQuery(late.get()) == cudaSuccess);
}

TEST_CASE("events measure time") {
  TestStream stream;
  const Event start, end, untimed(cudaEventDisableTiming);
  cuda_check(cudaEventRecord(start.get(), stream.get()));
  launch(sleep_ms, 1, 1, 0, stream.get(), 1);
  cuda_check(cudaEventRecord(end.get(), stream.get()));
  stream.synchronize();
  float ms = -1;
  cuda_check(cudaEventElapsedTime(&ms, start.get(), end.get()));
  CHECK(ms >= 0);
  cuda_check(cudaEventElapsedTime(&ms, end.get(), start.get()));
  CHECK(ms <= 0);
  cuda_check(cudaEventRecord(untimed.get(), stream.get()));
  stream.synchronize();
  CHECK(cudaEventElapsedTime(&ms, start.get(), untimed.get()) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a host function runs in stream order") {
  TestStream stream;
  const Flag flag;
  std::atomic<int> called{0};
  launch(wait_until, 1, 1, 0, stream.get(), flag.get(), 1);
  cuda_check(cudaLaunchHostFunc(
      stream.get(), [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &called));
  std::this_thread::sleep_for(2ms);
  CHECK(called == 0);
  flag.raise();
  stream.synchronize();
  CHECK(called == 1);
}

TEST_CASE("a destroyed stream finishes what it was given") {
  cudaStream_t stream = nullptr;
  const Flag flag;
  TestStream reader;
  DeviceArray<int> x(std::vector<int>{0}, reader.get());
  cuda_check(cudaStreamCreate(&stream));
  launch(wait_until, 1, 1, 0, stream, flag.get(), 1);
  launch(set, 1, 1, 0, stream, x.data(), 5);
  cuda_check(cudaStreamDestroy(stream));
  flag.raise();
  cuda_check(cudaDeviceSynchronize());
  CHECK(x.host(reader.get())[0] == 5);
}

TEST_CASE("what is not supported, or not sensible, is refused with a reason") {
  TestStream stream;
  DeviceArray<int> x(1);
  CHECK_THROWS_WITH(launch(set, 1, 1, 0, nullptr, x.data(), 1),
                    ContainsSubstring("legacy default stream"));
  CHECK_THROWS_WITH(cuda_check(cudaMemsetAsync(x.data(), 0, 4, nullptr)),
                    ContainsSubstring("legacy default stream"));
  CHECK_THROWS_WITH(cuda_check(cudaSetDevice(1000)), ContainsSubstring("VGPU_DEVICES"));
  cuda_check(cudaSetDevice(1));
  CHECK_THROWS_WITH(launch(set, 1, 1, 0, stream.get(), x.data(), 1),
                    ContainsSubstring("the current device is 1"));
  cuda_check(cudaSetDevice(0));
}
