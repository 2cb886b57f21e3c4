// A program for nvcc alone: graphs that are built node by node, and captures of several streams.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(good)                                                                                \
  do {                                                                                             \
    if (!(good)) {                                                                                 \
      std::printf("line %d: %s (%s)\n", __LINE__, #good, cudaGetErrorName(cudaPeekAtLastError())); \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

__global__ void add(int* x, int n) { *x += n; }
__global__ void times(int* x, int n) { *x *= n; }
__global__ void sum(const int* a, const int* b, int* out) { *out = *a + *b; }

void CUDART_CB note(void* data) { *static_cast<int*>(data) += 1; }

cudaKernelNodeParams kernel(void* function, void** arguments) {
  cudaKernelNodeParams p = {};
  p.func = function;
  p.gridDim = dim3(1, 1, 1);
  p.blockDim = dim3(1, 1, 1);
  p.kernelParams = arguments;
  return p;
}

// memset -> add 3 -> times 5 -> copy, and a host function after the fill.
int by_nodes(int* x, cudaStream_t stream) {
  cudaGraph_t graph = nullptr, clone = nullptr;
  cudaGraphNode_t fill, first, second, copy, host;
  CHECK(cudaGraphCreate(&graph, 0) == cudaSuccess);
  cudaMemsetParams fills = {};
  fills.dst = x;
  fills.elementSize = 4;
  fills.width = 1;
  fills.height = 1;
  CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &fills) == cudaSuccess);
  int three = 3, five = 5, result = -1, notes = 0;
  void* arguments[] = {&x, &three};
  cudaKernelNodeParams p = kernel((void*)add, arguments);
  CHECK(cudaGraphAddKernelNode(&first, graph, &fill, 1, &p) == cudaSuccess);
  void* factors[] = {&x, &five};
  p = kernel((void*)times, factors);
  CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &p) == cudaSuccess);
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &second, 1, &result, x, sizeof result,
                                 cudaMemcpyDeviceToHost) == cudaSuccess);
  cudaHostNodeParams calls = {note, &notes};
  CHECK(cudaGraphAddHostNode(&host, graph, &fill, 1, &calls) == cudaSuccess);
  cudaGraphNode_t nodes[8];
  std::size_t count = 8;
  CHECK(cudaGraphGetNodes(graph, nodes, &count) == cudaSuccess && count == 5 && nodes[1] == first);
  cudaGraphExec_t exec = nullptr, exec2 = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0) == cudaSuccess);
  CHECK(cudaGraphClone(&clone, graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec2, clone, NULL, NULL, 0) == cudaSuccess);
  for (int i = 0; i < 8; ++i) {
    result = -1;
    CHECK(cudaGraphLaunch(i % 2 == 0 ? exec : exec2, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess && result == 15 && notes == i + 1);
  }
  int four = 4;
  void* others[] = {&x, &four};
  p = kernel((void*)add, others);
  CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &p) == cudaSuccess);
  CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess && result == 20);
  // Another graph's node, and a graph of another shape.
  cudaGraph_t small = nullptr;
  cudaGraphExecUpdateResult updated;
  CHECK(cudaGraphCreate(&small, 0) == cudaSuccess);
  CHECK(cudaGraphAddKernelNode(&host, small, &first, 1, &p) == cudaErrorInvalidValue);
  CHECK(cudaGraphAddKernelNode(&host, small, nullptr, 0, &p) == cudaSuccess);
  CHECK(cudaGraphExecUpdate(exec, small, NULL, &updated) == cudaErrorGraphExecUpdateFailure &&
        updated == cudaGraphExecUpdateErrorTopologyChanged);
  CHECK(cudaGraphExecUpdate(exec, graph, NULL, &updated) == cudaSuccess);
  CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess && result == 15);
  fills.value = 0x01020304;
  CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &fills) == cudaErrorNotSupported);
  (void)cudaGetLastError();
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphExecDestroy(exec2) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess && cudaGraphDestroy(clone) == cudaSuccess);
  return 0;
}

// A missing dependency shows up: some launch runs `times` before `add`.
int missing_dependency(int* x, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node;
  cudaGraphExec_t exec = nullptr;
  int three = 3, five = 5, result = 0, wrong = 0;
  void *arguments[] = {&x, &three}, *factors[] = {&x, &five};
  cudaKernelNodeParams p = kernel((void*)add, arguments), q = kernel((void*)times, factors);
  CHECK(cudaGraphCreate(&graph, 0) == cudaSuccess);
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &p) == cudaSuccess);
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &q) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0) == cudaSuccess);
  for (int i = 0; i < 32; ++i) {
    CHECK(cudaMemsetAsync(x, 0, sizeof *x, stream) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(&result, x, sizeof result, cudaMemcpyDeviceToHost, stream) ==
          cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess && (result == 15 || result == 3));
    wrong += result == 3;
  }
  CHECK(wrong > 0 && wrong < 32);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
  return 0;
}

// origin: add 1, fork, add 2, join, sum         side: times 7
int captured(int* x, cudaStream_t origin) {
  cudaStream_t side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  int result = 0;
  CHECK(cudaStreamCreate(&side) == cudaSuccess);
  CHECK(cudaEventCreate(&forked) == cudaSuccess && cudaEventCreate(&joined) == cudaSuccess);
  const auto capture = [&](bool joins, cudaGraph_t* graph) {
    cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(x, 0, 3 * sizeof *x, origin);
    add<<<1, 1, 0, origin>>>(x, 1);
    add<<<1, 1, 0, origin>>>(x + 1, 1);
    cudaEventRecord(forked, origin);
    cudaStreamWaitEvent(side, forked, 0);
    times<<<1, 1, 0, side>>>(x + 1, 7);
    cudaEventRecord(joined, side);
    add<<<1, 1, 0, origin>>>(x, 2);
    if (joins) cudaStreamWaitEvent(origin, joined, 0);
    sum<<<1, 1, 0, origin>>>(x, x + 1, x + 2);
    return cudaStreamEndCapture(origin, graph);
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK(capture(true, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0) == cudaSuccess);
  for (int i = 0; i < 16; ++i) {
    CHECK(cudaGraphLaunch(exec, origin) == cudaSuccess);
    CHECK(cudaMemcpyAsync(&result, x + 2, sizeof result, cudaMemcpyDeviceToHost, origin) ==
          cudaSuccess);
    CHECK(cudaStreamSynchronize(origin) == cudaSuccess && result == 10);
  }
  // The side stream is free again, and its event belongs to a capture that has ended.
  CHECK(cudaStreamWaitEvent(side, joined, 0) == cudaErrorCapturedEvent);
  (void)cudaGetLastError();
  add<<<1, 1, 0, side>>>(x + 2, 1);
  CHECK(cudaStreamSynchronize(side) == cudaSuccess);
  cudaGraph_t unjoined = nullptr;
  CHECK(capture(false, &unjoined) == cudaErrorStreamCaptureUnjoined && unjoined == nullptr);
  (void)cudaGetLastError();
  CHECK(cudaStreamSynchronize(side) == cudaSuccess);
  // A stream that has joined cannot end the capture, or wait for the host.
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventRecord(forked, origin) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side, forked, 0) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(side, &status) == cudaSuccess &&
        status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamEndCapture(side, &unjoined) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamSynchronize(side) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(origin, &unjoined) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamIsCapturing(side, &status) == cudaSuccess &&
        status == cudaStreamCaptureStatusNone);
  (void)cudaGetLastError();
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(side) == cudaSuccess);
  return 0;
}

int main() {
  cudaStream_t stream = nullptr;
  int* x = nullptr;
  CHECK(cudaStreamCreate(&stream) == cudaSuccess && cudaMalloc(&x, 3 * sizeof *x) == cudaSuccess);
  CHECK(by_nodes(x, stream) == 0 && missing_dependency(x, stream) == 0 && captured(x, stream) == 0);
  std::printf("foreign_graph: all as promised\n");
  return 0;
}
