// The legacy default stream and the streams that it waits for. CTest runs these cases with
// VGPU_LEGACY_STREAM=1 (entry vgpu_default_stream); their tag hides them from other runs.
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;

namespace {

__global__ void add_one(int* x) { *x += 1; }

int value(const DeviceArray<int>& x) {
  int seen = -1;
  cuda_check(cudaMemcpy(&seen, x.data(), sizeof seen, cudaMemcpyDeviceToHost));
  return seen;
}

}  // namespace

TEST_CASE("the default stream never waits for a stream that has been destroyed", "[.default]") {
  const DeviceArray<int> x(1);
  cuda_check(cudaMemset(x.data(), 0, sizeof(int)));
  constexpr int kRounds = 3000;
  for (int i = 0; i < kRounds; ++i) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreate(&stream));
    launch(add_one, 1, 1, 0, stream, x.data());
    if (i % 3 == 0) cuda_check(cudaStreamSynchronize(stream));
    cuda_check(cudaStreamDestroy(stream));  // the worker may still run the kernel, or have ended
    launch(add_one, 1, 1, 0, nullptr, x.data());
    if (i % 2 == 0) cuda_check(cudaDeviceSynchronize());
  }
  CHECK(value(x) == 2 * kRounds);
}

TEST_CASE("threads that destroy streams, use the default stream and synchronize the device",
          "[.default]") {
  constexpr int kThreads = 4, kRounds = 300;
  std::deque<DeviceArray<int>> x;
  for (int t = 0; t < kThreads; ++t) x.emplace_back(1);
  for (const auto& each : x) cuda_check(cudaMemset(each.data(), 0, sizeof(int)));
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        cudaStream_t stream = nullptr;
        failed += cudaStreamCreate(&stream) != cudaSuccess;
        launch(add_one, 1, 1, 0, stream, x[t].data());
        failed += cudaStreamDestroy(stream) != cudaSuccess;
        launch(add_one, 1, 1, 0, nullptr, x[t].data());
        if (i % (t + 2) == 0) failed += cudaDeviceSynchronize() != cudaSuccess;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failed == 0);
  for (const auto& each : x) CHECK(value(each) == 2 * kRounds);
}

TEST_CASE("the default stream is refused while a blocking stream is captured", "[.default]") {
  const DeviceArray<int> x(1);
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
      const bool refused = flags == cudaStreamDefault;
      cudaStream_t stream = nullptr;
      cuda_check(cudaStreamCreateWithFlags(&stream, flags));
      cuda_check(cudaStreamBeginCapture(stream, mode));
      launch(add_one, 1, 1, 0, stream, x.data());
      const cudaError_t inside = cudaMemsetAsync(x.data(), 0, sizeof(int), nullptr);
      (void)cudaGetLastError();
      CHECK(inside == (refused ? cudaErrorStreamCaptureImplicit : cudaSuccess));
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(stream, &graph) ==
            (refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
      (void)cudaGetLastError();
      if (graph != nullptr) cuda_check(cudaGraphDestroy(graph));
      cuda_check(cudaStreamDestroy(stream));
      cuda_check(cudaDeviceSynchronize());
    }
  }
}
