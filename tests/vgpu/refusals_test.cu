// Calls with wrong arguments return CUDA's code, and vgpu::why() gives the reason.
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

__global__ void nothing() {}

void refused(cudaError_t code, cudaError_t want, const std::string& reason) {
  CHECK(code == want);
#ifdef __CUDACC__
  (void)reason;  // CUDA's own codes have none
#else
  CHECK_THAT(vgpu::why(), ContainsSubstring(reason));
#endif
  CHECK(cudaGetLastError() == want);
}

}  // namespace

TEST_CASE("a destroyed stream or event, or what is none, is refused") {
  TestStream living;
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreate(&stream));
  cuda_check(cudaStreamDestroy(stream));
  refused(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle, "already been destroyed");
  refused(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle, "already been destroyed");
  CHECK_THROWS_WITH(launch(nothing, 1, 1, 0, stream), ContainsSubstring("already been destroyed"));
  int local = 0;
  refused(cudaStreamQuery(reinterpret_cast<cudaStream_t>(&local)), cudaErrorInvalidResourceHandle,
          "not a valid handle");
  refused(cudaStreamQuery(reinterpret_cast<cudaStream_t>(2)),  // NOLINT: cudaStreamPerThread
          cudaErrorInvalidResourceHandle, "per-thread default stream");

  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  cuda_check(cudaEventRecord(event, living.get()));
  cuda_check(cudaEventDestroy(event));
  refused(cudaEventRecord(event, living.get()), cudaErrorInvalidResourceHandle,
          "already been destroyed");
  refused(cudaStreamWaitEvent(living.get(), event), cudaErrorInvalidResourceHandle, "destroyed");
  refused(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle, "already been destroyed");
  refused(cudaEventDestroy(event), cudaErrorInvalidResourceHandle, "already been destroyed");
}

TEST_CASE("a copy or fill that the pinned memory does not hold, or of null, is refused") {
  TestStream stream;
  DeviceArray<std::byte> x(5000);
  std::byte* pinned = nullptr;
  cuda_check(cudaHostAlloc(&pinned, 400, cudaHostAllocPortable));
  refused(cudaMemcpyAsync(pinned, x.data(), 401, cudaMemcpyDeviceToHost, stream.get()),
          cudaErrorInvalidValue,
          "401 bytes do not fit in the target, pinned host memory (400 bytes) + 0");
  refused(cudaMemcpyAsync(x.data(), pinned + 100, 301, cudaMemcpyDefault, stream.get()),
          cudaErrorInvalidValue, "301 bytes do not fit in the source");
  refused(cudaMemsetAsync(pinned, 0, 401, stream.get()), cudaErrorInvalidValue, "401 bytes");
  refused(cudaMemcpyAsync(nullptr, x.data(), 4, cudaMemcpyDeviceToHost, stream.get()),
          cudaErrorInvalidValue, "the target is null");
  refused(cudaMemcpyAsync(x.data(), nullptr, 4, cudaMemcpyDefault, stream.get()),
          cudaErrorInvalidValue, "the source is null");
  std::vector<std::byte> pageable(4);
  refused(cudaMemsetAsync(pageable.data(), 0, 4, stream.get()), cudaErrorInvalidValue,
          "the target must be device or pinned memory");
  cuda_check(cudaMemcpyAsync(pinned, x.data(), 400, cudaMemcpyDeviceToHost, stream.get()));
  cuda_check(cudaFreeHost(pinned));
}

TEST_CASE("null as a host function, and too much dynamic shared memory") {
  TestStream stream;
  refused(cudaLaunchHostFunc(stream.get(), nullptr, nullptr), cudaErrorInvalidValue, "is null");
  CHECK_THROWS_WITH(launch(nothing, 1, 1, (48 << 10) + 1, stream.get()),
                    ContainsSubstring("cudaErrorInvalidValue"));
}

TEST_CASE("what is only not ready yet is not given the reason of an earlier error") {
  TestStream stream;
  cudaEvent_t event = nullptr, untimed = nullptr;
  cuda_check(cudaEventCreate(&event));
  cuda_check(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  float ms = 0;
  refused(cudaEventElapsedTime(&ms, event, untimed), cudaErrorInvalidResourceHandle, "Timing");
  struct Gate {
    std::mutex closed;
    static void pass(void* gate) { const std::scoped_lock lock(static_cast<Gate*>(gate)->closed); }
  } gate;
  {
    const std::scoped_lock lock(gate.closed);
    cuda_check(cudaLaunchHostFunc(stream.get(), Gate::pass, &gate));
    cuda_check(cudaEventRecord(event, stream.get()));
    refused(cudaEventQuery(event), cudaErrorNotReady, "has not reached it yet");
    refused(cudaEventElapsedTime(&ms, event, event), cudaErrorNotReady, "has not reached it yet");
    refused(cudaStreamQuery(stream.get()), cudaErrorNotReady, "has work left");
  }
  stream.synchronize();
  cuda_check(cudaEventDestroy(event));
  cuda_check(cudaEventDestroy(untimed));
}
