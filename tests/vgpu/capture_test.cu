// The rules for calls during a capture: which threads' calls are refused, and that a refused call
// invalidates the capture.
#include <string>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

__global__ void add_one(int* x) { *x += 1; }

// Returns the result of a query of the event, and clears the error.
cudaError_t query(cudaEvent_t event) {
  const cudaError_t code = cudaEventQuery(event);
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}
cudaError_t query_elsewhere(cudaEvent_t event, cudaStreamCaptureMode mode) {
  cudaError_t code{};
  std::thread([&] {
    cudaStreamCaptureMode exchanged = mode;
    cuda_check(cudaThreadExchangeStreamCaptureMode(&exchanged));
    if (exchanged == cudaStreamCaptureModeGlobal) code = query(event);
  }).join();
  return code;
}

struct Captured {
  cudaError_t inside, end;
};
template <class Body>
Captured capture(cudaStreamCaptureMode mode, const Body& body) {
  const TestStream stream;
  const DeviceArray<int> x(1);
  cuda_check(cudaStreamBeginCapture(stream.get(), mode));
  launch(add_one, 1, 1, 0, stream.get(), x.data());
  Captured result{};
  result.inside = body(stream.get());
  cudaStreamCaptureStatus status{};
  cuda_check(cudaStreamIsCapturing(stream.get(), &status));
  CHECK((status == cudaStreamCaptureStatusActive) == (result.inside == cudaSuccess));
  cudaGraph_t graph = nullptr;
  result.end = cudaStreamEndCapture(stream.get(), &graph);
  CHECK((graph != nullptr) == (result.end == cudaSuccess));
  if (graph != nullptr) cuda_check(cudaGraphDestroy(graph));
  (void)cudaGetLastError();
  cuda_check(cudaStreamSynchronize(stream.get()));  // the capture has ended in either case
  return result;
}

constexpr auto kGlobal = cudaStreamCaptureModeGlobal, kLocal = cudaStreamCaptureModeThreadLocal,
               kRelaxed = cudaStreamCaptureModeRelaxed;

void check(const Captured& got, bool permitted) {
  CHECK(got.inside == (permitted ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
  CHECK(got.end == (permitted ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
}

}  // namespace

TEST_CASE("a query during a capture is refused as the two modes demand, and ends the capture") {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  for (const auto mode : {kGlobal, kLocal, kRelaxed}) {
    INFO("captured in mode " << mode);
    check(capture(mode, [&](auto) { return query(event); }), mode == kRelaxed);
    for (const auto other : {kGlobal, kLocal, kRelaxed}) {
      INFO("other thread in mode " << other);
      check(capture(mode, [&](auto) { return query_elsewhere(event, other); }),
            mode != kGlobal || other != kGlobal);
    }
    // A call about the captured stream itself is refused in every mode.
    check(capture(mode, [](auto stream) { return cudaStreamQuery(stream); }), false);
    check(capture(mode, [](auto stream) { return cudaStreamSynchronize(stream); }), false);
  }
  CHECK(query(event) == cudaSuccess);
  cuda_check(cudaEventDestroy(event));
}

TEST_CASE("allocations and synchronisations are refused during a capture") {
  const TestStream other;
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, 100));
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  void *never = nullptr, *pinned = nullptr;
  cuda_check(cudaHostAlloc(&pinned, 100, 0));
  check(capture(kGlobal, [&](auto) { return cudaMalloc(&never, 100); }), false);
  check(capture(kGlobal, [&](auto) { return cudaFree(memory); }), false);
  check(capture(kGlobal, [&](auto) { return cudaHostAlloc(&never, 100, 0); }), false);
  check(capture(kGlobal, [&](auto) { return cudaFreeHost(pinned); }), false);
  check(capture(kGlobal, [&](auto) { return cudaEventSynchronize(event); }), false);
  check(capture(kGlobal, [&](auto) { return cudaStreamSynchronize(other.get()); }), false);
  check(capture(kGlobal, [&](auto) { return cudaDeviceSynchronize(); }), false);
  // Recording an event neither waits nor queries.
  check(capture(kGlobal, [&](auto) { return cudaEventRecord(event, other.get()); }), true);
  CHECK(never == nullptr);
  cuda_check(cudaFree(memory));
  cuda_check(cudaFreeHost(pinned));
  cuda_check(cudaEventDestroy(event));
}

TEST_CASE("only the thread that began a capture ends it, unless the mode is relaxed") {
  for (const auto mode : {kGlobal, kLocal, kRelaxed}) {
    const TestStream stream;
    cuda_check(cudaStreamBeginCapture(stream.get(), mode));
    cudaGraph_t graph = nullptr;
    cudaError_t code{};
    std::thread([&] { code = cudaStreamEndCapture(stream.get(), &graph); }).join();
    CHECK(code == (mode == kRelaxed ? cudaSuccess : cudaErrorStreamCaptureWrongThread));
    if (mode != kRelaxed) cuda_check(cudaStreamEndCapture(stream.get(), &graph));
    cuda_check(cudaGraphDestroy(graph));
  }
}

TEST_CASE("a stream that waits for an event of a capture joins it; the host cannot wait for it") {
  cudaEvent_t event = nullptr, joined = nullptr;
  cuda_check(cudaEventCreate(&event));
  cuda_check(cudaEventCreate(&joined));
  const TestStream stream, other;
  const DeviceArray<int> x(1);
  cuda_check(cudaStreamBeginCapture(stream.get(), kRelaxed));
  cuda_check(cudaEventRecord(event, stream.get()));
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
  (void)cudaGetLastError();
  cuda_check(cudaStreamWaitEvent(other.get(), event, 0));
  launch(add_one, 1, 1, 0, other.get(), x.data());
  cuda_check(cudaEventRecord(joined, other.get()));
  cuda_check(cudaStreamWaitEvent(stream.get(), joined, 0));
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamEndCapture(stream.get(), &graph));
  std::size_t nodes = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 1);
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(other.get(), joined, 0) == cudaErrorCapturedEvent);
  (void)cudaGetLastError();
  cuda_check(cudaEventRecord(event, stream.get()));
  cuda_check(cudaEventSynchronize(event));
  cuda_check(cudaStreamWaitEvent(other.get(), event, 0));
  cuda_check(cudaStreamSynchronize(other.get()));
  cuda_check(cudaGraphDestroy(graph));
  cuda_check(cudaEventDestroy(event));
  cuda_check(cudaEventDestroy(joined));
}

TEST_CASE("a capture with work of a stream that is not joined again fails") {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  const TestStream stream, other;
  const DeviceArray<int> x(1);
  cuda_check(cudaStreamBeginCapture(stream.get(), kRelaxed));
  cuda_check(cudaEventRecord(event, stream.get()));
  cuda_check(cudaStreamWaitEvent(other.get(), event, 0));
  launch(add_one, 1, 1, 0, other.get(), x.data());
  cudaGraph_t graph = nullptr;
  CHECK(static_cast<int>(cudaStreamEndCapture(stream.get(), &graph)) == 904);  // ...Unjoined
  CHECK(graph == nullptr);
  (void)cudaGetLastError();
  cuda_check(cudaStreamSynchronize(other.get()));  // no longer captured
  cuda_check(cudaEventDestroy(event));
}
