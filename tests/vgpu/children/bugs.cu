// Ten classic mistakes of CUDA programs, each next to the right version: `bugs NAME [right]`.
// tests/vgpu/bugs_test.cpp has their messages and finds the lines marked "the bug" in this file.
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda/atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/vgpu/children/pair.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

constexpr int kThreads = 64;

// 1. A neighbour's element is read without a barrier after the write.
__global__ void shift(const int* in, int* out, bool right) {
  __shared__ int tile[kThreads];
  const unsigned i = threadIdx.x;
  tile[i] = in[i];
  if (right) __syncthreads();
  out[i] = tile[(i + 1) % kThreads];  // the bug: missing_barrier
}

int missing_barrier(bool right) {
  TestStream stream;
  std::vector<int> values(kThreads);
  for (int i = 0; i < kThreads; ++i) values[std::size_t(i)] = i;
  DeviceArray<int> in(values, stream.get()), out(kThreads);
  launch(shift, 1, kThreads, 0, stream.get(), in.data(), out.data(), right);
  const auto got = out.host(stream.get());
  for (int i = 0; i < kThreads; ++i)
    if (got[std::size_t(i)] != (i + 1) % kThreads) throw Error("wrong result");
  return 0;
}

// 2. One stream reads memory that another stream writes, without waiting for an event.
__global__ void produce(int* x) { x[threadIdx.x] = static_cast<int>(threadIdx.x); }
__global__ void consume(const int* x, int* y) {
  y[threadIdx.x] = x[threadIdx.x];  // the bug: missing_event
}

int missing_event(bool right) {
  TestStream first, second;
  DeviceArray<int> x(kThreads), y(kThreads);
  cudaEvent_t produced = nullptr;
  cuda_check(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
  launch(produce, 1, kThreads, 0, first.get(), x.data());
  cuda_check(cudaEventRecord(produced, first.get()));
  if (right) cuda_check(cudaStreamWaitEvent(second.get(), produced));
  launch(consume, 1, kThreads, 0, second.get(), x.data(), y.data());
  const auto got = y.host(second.get());
  first.synchronize();
  cuda_check(cudaEventDestroy(produced));
  for (int i = 0; i < kThreads; ++i)
    if (got[std::size_t(i)] != i) throw Error("wrong result");
  return 0;
}

// 3. The host reads the target of a copy without waiting for the copy.
int early_read(bool right) {
  TestStream stream;
  DeviceArray<int> x(kThreads);
  int* host = nullptr;
  cuda_check(cudaHostAlloc(&host, kThreads * sizeof(int), cudaHostAllocPortable));
  launch(produce, 1, kThreads, 0, stream.get(), x.data());
  cuda_check(cudaMemcpyAsync(host, x.data(), kThreads * sizeof(int), cudaMemcpyDeviceToHost,
                             stream.get()));
  if (right) stream.synchronize();
  const int last = host[kThreads - 1];  // the bug: early_read
  stream.synchronize();
  cuda_check(cudaFreeHost(host));
  if (last != kThreads - 1) throw Error("wrong result");
  return 0;
}

// 4. One thread writes beyond the end.
__global__ void write_all(float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] = 1;  // the bug: out_of_bounds
}

int out_of_bounds(bool right) {
  TestStream stream;
  DeviceArray<float> x(1024);
  launch(write_all, 2, 1024, 0, stream.get(), x.data(), right ? 1024 : 1025);
  stream.synchronize();
  return 0;
}

// Also writes beyond the end, but by so few bytes that the write does not reach the guard page.
int slightly_out_of_bounds(bool right) {
  TestStream stream;
  DeviceArray<float> x(1000);
  launch(write_all, 1, 1024, 0, stream.get(), x.data(), right ? 1000 : 1001);
  cuda_check(cudaDeviceSynchronize());
  return 0;
}

// 5. Memory is freed while a pointer to it is still in use.
int use_after_free(bool right) {
  TestStream stream;
  float* x = nullptr;
  cuda_check(cudaMalloc(&x, 4096));
  if (!right) cuda_check(cudaFree(x));
  launch(write_all, 1, 32, 0, stream.get(), x, 32);
  stream.synchronize();
  if (right) cuda_check(cudaFree(x));
  return 0;
}

// Host code dereferences a device pointer.
int host_access(bool right) {
  TestStream stream;
  DeviceArray<int> x(std::vector<int>{7}, stream.get());
  const int value = right ? x.host(stream.get())[0] : *x.data();  // the bug: host_access
  return value == 7 ? 0 : 1;
}

// A kernel dereferences a pointer to a device that is not its peer.
int no_peer_access(bool right) {
  float* far = nullptr;
  cuda_check(cudaSetDevice(1));
  cuda_check(cudaMalloc(&far, 4096));
  cuda_check(cudaSetDevice(0));
  if (right) cuda_check(cudaDeviceEnablePeerAccess(1, 0));
  TestStream stream;
  launch(write_all, 1, 32, 0, stream.get(), far, 32);
  stream.synchronize();
  return 0;
}

// 6. The importer uses the block's base as the array's address.
int ignored_offset(bool right) {
  return run_pair(
      "bugs",
      [](Wire wire, pid_t) {
        DeviceArray<float> x(1000);
        cudaIpcMemHandle_t handle;
        cuda_check(cudaIpcGetMemHandle(&handle, x.data()));
        CUdeviceptr base = 0;
        std::size_t size = 0;
        (void)cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(x.data()));
        wire.send(handle);
        wire.send(reinterpret_cast<CUdeviceptr>(x.data()) - base);
        (void)wire.receive<int>();
      },
      [right](Wire wire) {
        TestStream stream;
        const auto handle = wire.receive<cudaIpcMemHandle_t>();
        const auto offset = wire.receive<CUdeviceptr>();
        void* base = nullptr;
        cuda_check(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess));
        auto* x = reinterpret_cast<float*>(static_cast<std::byte*>(base) + (right ? offset : 0));
        launch(write_all, 1, 1000, 0, stream.get(), x, 1000);
        stream.synchronize();
        wire.send(1);
      });
}

// 7. A process opens its own handle.
int own_handle(bool right) {
  DeviceArray<float> x(1000);
  cudaIpcMemHandle_t handle;
  cuda_check(cudaIpcGetMemHandle(&handle, x.data()));
  void* base = x.data();
  if (!right) cuda_check(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess));
  return 0;
}

// 8. A step of a ring: block 0 sends, block 1 receives. The flag is set before the data, or orders
// nothing, or its fence comes before the data.
enum class Publish : int { right, flag_first, relaxed, fenced, early_fence };

__global__ void hand_over(int* slot, unsigned* tail, int* out, Publish publish) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> flag(*tail);
  if (blockIdx.x == 0) {
    if (publish == Publish::flag_first) flag.store(1, cuda::memory_order_release);
    if (publish == Publish::early_fence) {
      __threadfence_system();
      *slot = 42;  // the bug: early_fence
    } else {
      *slot = 42;  // the bug: flag_first
    }
    if (publish == Publish::fenced) __threadfence_system();
    if (publish >= Publish::relaxed) flag.store(1, cuda::memory_order_relaxed);
    if (publish == Publish::right) flag.store(1, cuda::memory_order_release);
  } else {
    while (flag.load(cuda::memory_order_acquire) != 1) __nanosleep(20);
    *out = *slot;  // the bug: relaxed_flag
  }
}

int publish(Publish how) {
  TestStream stream;
  DeviceArray<int> slot(1), out(1);
  DeviceArray<unsigned> tail(std::vector<unsigned>{0}, stream.get());
  launch(hand_over, 2, 1, 0, stream.get(), slot.data(), tail.data(), out.data(), how);
  stream.synchronize();
  return 0;
}
int flag_first(bool right) { return publish(right ? Publish::right : Publish::flag_first); }
int relaxed_flag(bool right) { return publish(right ? Publish::right : Publish::relaxed); }
int early_fence(bool right) { return publish(right ? Publish::fenced : Publish::early_fence); }

// 9. Half of the block waits at a barrier that the other half never reaches.
__global__ void half_waits(bool right) {
  if (right || threadIdx.x < 32) __syncthreads();  // the bug: divergent_barrier
}

int divergent_barrier(bool right) {
  TestStream stream;
  launch(half_waits, 1, kThreads, 0, stream.get(), right);
  stream.synchronize();
  return 0;
}

// ... or waits at a different barrier.
__global__ void two_barriers(bool right) {
  if (right || threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();  // the bug: different_barriers
}

int different_barriers(bool right) {
  TestStream stream;
  launch(two_barriers, 1, kThreads, 0, stream.get(), right);
  stream.synchronize();
  return 0;
}

// 10. A flag that is never set, and a wait that never yields to other threads.
__global__ void wait_for(unsigned* flag, unsigned value) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> f(*flag);
  while (f.load(cuda::memory_order_acquire) != value) __nanosleep(100);  // the bug: endless
}

int endless(bool right) {
  TestStream stream;
  DeviceArray<unsigned> flag(std::vector<unsigned>{3}, stream.get());
  launch(wait_for, 1, 2, 0, stream.get(), flag.data(), right ? 3U : 4U);
  stream.synchronize();
  return 0;
}

__global__ void plain_wait(volatile unsigned* flag, unsigned value) {
  while (*flag != value) {  // the bug: plain_endless
  }
}

int plain_endless(bool right) {
  TestStream stream;
  DeviceArray<unsigned> flag(std::vector<unsigned>{3}, stream.get());
  launch(plain_wait, 1, 2, 0, stream.get(), static_cast<volatile unsigned*>(flag.data()),
         right ? 3U : 4U);
  stream.synchronize();
  return 0;
}

const std::map<std::string, std::function<int(bool)>> kBugs = {
    {"missing_barrier", missing_barrier},
    {"missing_event", missing_event},
    {"early_read", early_read},
    {"out_of_bounds", out_of_bounds},
    {"slightly_out_of_bounds", slightly_out_of_bounds},
    {"use_after_free", use_after_free},
    {"host_access", host_access},
    {"no_peer_access", no_peer_access},
    {"ignored_offset", ignored_offset},
    {"own_handle", own_handle},
    {"flag_first", flag_first},
    {"relaxed_flag", relaxed_flag},
    {"early_fence", early_fence},
    {"divergent_barrier", divergent_barrier},
    {"different_barriers", different_barriers},
    {"endless", endless},
    {"plain_endless", plain_endless},
};

}  // namespace

int main(int argc, char** argv) {
  const auto bug = kBugs.find(argc > 1 ? argv[1] : "");
  if (bug == kBugs.end()) {
    std::fprintf(stderr, "bugs NAME [right], with NAME one of");
    for (const auto& [name, run] : kBugs) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 6;
  }
  const bool right = argc > 2 && std::strcmp(argv[2], "right") == 0;
  return run_main("bugs", [&] { return bug->second(right); });
}
