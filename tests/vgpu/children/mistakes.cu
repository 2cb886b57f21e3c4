// Mistakes that end the program: `mistakes NAME [right]`, like bugs.cu.
// tests/vgpu/mistakes_test.cpp has their messages.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda/atomic>
#include <functional>
#include <map>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "tests/vgpu/children/pair.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

void throws(void*) { throw Error("no more cake"); }
void returns(void*) {}
void synchronizes(void* stream) { (void)cudaStreamSynchronize(static_cast<cudaStream_t>(stream)); }
void allocates(void*) {
  float* x = nullptr;
  (void)cudaMalloc(&x, 4);
}

int host_function(cudaHostFn_t function) {
  TestStream stream;
  cuda_check(cudaLaunchHostFunc(stream.get(), function, stream.get()));
  stream.synchronize();
  return 0;
}
int host_throws(bool right) { return host_function(right ? returns : throws); }
int host_waits(bool right) { return host_function(right ? returns : synchronizes); }
int host_allocates(bool right) { return host_function(right ? returns : allocates); }

__global__ void load_four(const float* x, float4* y) { *y = *reinterpret_cast<const float4*>(x); }

int misaligned(bool right) {
  TestStream stream;
  DeviceArray<float> x(std::vector<float>(8, 2.0F), stream.get());
  DeviceArray<float4> y(1);
  launch(load_four, 1, 1, 0, stream.get(), x.data() + (right ? 4 : 1), y.data());
  return y.host(stream.get())[0].w == 2 ? 0 : 1;
}

__global__ void divide(int* x, int by) { *x = 6 / by; }

int divide_by_zero(bool right) {
  TestStream stream;
  DeviceArray<int> x(1);
  launch(divide, 1, 1, 0, stream.get(), x.data(), right ? 2 : 0);
  return x.host(stream.get())[0] == 3 ? 0 : 1;
}

// A copy to a host page that is not writable.
int copy_into_nowhere(bool right) {
  TestStream stream;
  constexpr std::size_t kBytes = 4096;
  void* host = ::mmap(nullptr, kBytes, right ? PROT_READ | PROT_WRITE : PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  DeviceArray<std::byte> x(kBytes);
  cuda_check(cudaMemcpyAsync(host, x.data(), kBytes, cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  return 0;
}

__global__ void write_one(float* x) { *x = 1; }

// The importer closes the handle and continues to use the memory.
int use_after_close(bool right) {
  return run_pair(
      "mistakes",
      [](Wire wire, pid_t) {
        DeviceArray<float> x(1 << 20);
        cudaIpcMemHandle_t handle;
        cuda_check(cudaIpcGetMemHandle(&handle, x.data()));
        wire.send(handle);
        (void)wire.receive<int>();
      },
      [right](Wire wire) {
        TestStream stream;
        const auto handle = wire.receive<cudaIpcMemHandle_t>();
        void* base = nullptr;
        cuda_check(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess));
        if (!right) cuda_check(cudaIpcCloseMemHandle(base));
        launch(write_one, 1, 1, 0, stream.get(), static_cast<float*>(base));
        stream.synchronize();
        wire.send(1);
      });
}

// The host allocates, or launches a kernel for the first time, while a kernel waits for the host.
// With VGPU_DRIVER_WAITS=1 the host's call waits for that kernel, so neither can continue.
__global__ void wait_for(unsigned* flag) {
  while (cuda::atomic_ref<unsigned, cuda::thread_scope_system>(*flag).load(
             cuda::memory_order_relaxed) == 0) {
  }
}

int beside_waiting(bool right, const std::function<void(cudaStream_t)>& call) {
  TestStream stream, other;
  unsigned* flag = nullptr;
  cuda_check(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
  *flag = 0;
  if (right) call(other.get());
  launch(wait_for, 1, 1, 0, stream.get(), flag);
  while (cudaStreamQuery(stream.get()) == cudaErrorNotReady && flag[0] == 0) {
    // The kernel is probably running by now. If so, the call below waits until the kernel has
    // ended.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (!right) call(other.get());
    cuda::atomic_ref<unsigned, cuda::thread_scope_system>(*flag).store(1,
                                                                       cuda::memory_order_relaxed);
  }
  stream.synchronize();
  other.synchronize();
  return 0;
}
int allocation_beside_waiting(bool right) {
  return beside_waiting(right, [](cudaStream_t) {
    float* x = nullptr;
    cuda_check(cudaMalloc(&x, 4));
  });
}
int first_launch_beside_waiting(bool right) {
  DeviceArray<float> x(1);
  return beside_waiting(right,
                        [&](cudaStream_t stream) { launch(write_one, 1, 1, 0, stream, x.data()); });
}

const std::map<std::string, std::function<int(bool)>> kMistakes = {
    {"host_throws", host_throws},
    {"host_waits", host_waits},
    {"host_allocates", host_allocates},
    {"misaligned", misaligned},
    {"divide_by_zero", divide_by_zero},
    {"copy_into_nowhere", copy_into_nowhere},
    {"use_after_close", use_after_close},
    {"allocation_beside_waiting", allocation_beside_waiting},
    {"first_launch_beside_waiting", first_launch_beside_waiting},
};

}  // namespace

int main(int argc, char** argv) {
  const auto mistake = kMistakes.find(argc > 1 ? argv[1] : "");
  if (mistake == kMistakes.end()) {
    std::fprintf(stderr, "mistakes NAME [right], with NAME one of");
    for (const auto& [name, run] : kMistakes) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 6;
  }
  const bool right = argc > 2 && std::strcmp(argv[2], "right") == 0;
  return run_main("mistakes", [&] { return mistake->second(right); });
}
