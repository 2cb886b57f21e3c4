// Tests the emulator's legacy default stream and graphs, on which other programs rely. Compiled by
// kernels/vgpu/nvcc (nvcc_test.py), and run with VGPU_LEGACY_STREAM=1.
#include <cstdio>
#include <cstdlib>

#define CHECK(what)                                                   \
  do {                                                                \
    if (!(what)) {                                                    \
      std::fprintf(stderr, "legacy: line %d: %s\n", __LINE__, #what); \
      std::exit(1);                                                   \
    }                                                                 \
  } while (0)

namespace {

// A delay. In the emulator, the first calls of __nanosleep() in a row return immediately or yield
// the core, and later ones sleep.
__global__ void nap(int times) {
  for (int i = 0; i < times; ++i) __nanosleep(1000);
}
__global__ void wait_until_set(int* flag) {
  while (atomicAdd(flag, 0) == 0) __nanosleep(1000);
}
template <class T>
__global__ void put(T* x, T value) {
  *x = value;
}
__global__ void add(int* x, const int* y) { *x += *y; }
__global__ void reverse(int* x, int n) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

int read(const int* x) {
  int value = 0;
  CHECK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
  return value;
}

// The default stream waits for blocking streams, and they wait for it.
void blocking_streams_wait() {
  cudaStream_t blocking = NULL;
  CHECK(cudaStreamCreate(&blocking) == cudaSuccess);
  int *x = NULL, *y = NULL;
  CHECK(cudaMalloc(&x, sizeof *x) == cudaSuccess && cudaMalloc(&y, sizeof *y) == cudaSuccess);
  for (int i = 0; i < 20; ++i) {
    put<<<1, 1>>>(x, 0);
    nap<<<1, 1, 0, blocking>>>(50);
    put<int><<<1, 1, 0, blocking>>>(y, 5 + i);
    add<<<1, 1>>>(x, y);  // after the blocking stream
    nap<<<1, 1>>>(50);
    put<<<1, 1>>>(y, 1);
    add<<<1, 1, 0, blocking>>>(x, y);  // after the default stream
    CHECK(read(x) == 6 + i);
  }
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

// The default stream and non-blocking streams do not wait for each other.
void other_streams_do_not() {
  cudaStream_t free = NULL;
  CHECK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking) == cudaSuccess);
  int* flag = NULL;
  const int zero = 0, one = 1;
  CHECK(cudaMalloc(&flag, sizeof *flag) == cudaSuccess);
  CHECK(cudaMemcpy(flag, &zero, sizeof zero, cudaMemcpyHostToDevice) == cudaSuccess);
  wait_until_set<<<1, 1, 0, free>>>(flag);
  nap<<<1, 1>>>(1);
  CHECK(cudaStreamSynchronize(NULL) == cudaSuccess);
  CHECK(cudaStreamQuery(free) == cudaErrorNotReady);
  CHECK(cudaMemcpy(flag, &one, sizeof one, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaStreamSynchronize(free) == cudaSuccess);
}

void graph_runs_again_and_again() {
  cudaStream_t stream = NULL;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  int *x = NULL, *y = NULL;
  CHECK(cudaMalloc(&x, sizeof *x) == cudaSuccess && cudaMalloc(&y, sizeof *y) == cudaSuccess);
  put<<<1, 1>>>(x, 0);
  put<<<1, 1>>>(y, 3);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  add<<<1, 1, 0, stream>>>(x, y);
  add<<<1, 1, 0, stream>>>(x, y);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorInvalidValue);
  // The refused call has invalidated the capture.
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(graph == NULL);
  CHECK(read(x) == 0);  // nothing has run yet
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  add<<<1, 1, 0, stream>>>(x, y);
  add<<<1, 1, 0, stream>>>(x, y);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaErrorInvalidValue);
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(read(x) == 3 * 2 * 3);
}

void kernels_by_address() {
  int* x = NULL;
  CHECK(cudaMalloc(&x, 64 * sizeof *x) == cudaSuccess);
  int host[64];
  for (int i = 0; i < 64; ++i) host[i] = i;
  CHECK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess);
  int n = 64;
  void* arguments[] = {&x, &n};
  const void* kernel = (const void*)&reverse;
  CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(64), arguments, sizeof host, NULL) == cudaSuccess);
  reverse<<<dim3(1), dim3(64), sizeof host>>>(x, 64);
  reverse<<<1, 64, 64 * sizeof(int), cudaStreamDefault>>>(x, n);
  CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (int i = 0; i < 64; ++i) CHECK(host[i] == 63 - i);
  CHECK(cudaLaunchKernel((const void*)&host, dim3(1), dim3(1), arguments, 0, NULL) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
  put<<<0, 1>>>(x, 1);  // an empty grid: only cudaGetLastError() reports it
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
}

}  // namespace

int main() {
  blocking_streams_wait();
  other_streams_do_not();
  graph_runs_again_and_again();
  kernels_by_address();
  char bus[16];
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 1) == cudaSuccess && bus[6] == '1');
  CHECK(cudaDeviceReset() == cudaSuccess);
  std::printf("legacy: all as promised\n");
}
