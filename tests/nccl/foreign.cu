// A program for nvcc alone: the calls of api/foreign.hpp, cooperative groups, and a kernel that an
// included file launches. nvcc_test.py writes that file, and its include before the first line.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda_profiler_api.h>

namespace cg = cooperative_groups;

#define CHECK(good)                                  \
  do {                                               \
    if (!(good)) {                                   \
      std::printf("line %d: %s\n", __LINE__, #good); \
      return 1;                                      \
    }                                                \
  } while (0)

// Each tile of N threads adds its threads' numbers; the tile's first thread stores the sum.
template <unsigned N>
__global__ void tiles(int* sums, unsigned* ballots, int* wrong) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<N> tile = cg::tiled_partition<N>(block);
  const int sum = cg::reduce(tile, static_cast<int>(block.thread_rank()), cg::plus<int>());
  const unsigned odd = tile.ballot(block.thread_rank() % 2);
  if (tile.thread_rank() == 0) {
    sums[tile.meta_group_rank()] = sum;
    ballots[tile.meta_group_rank()] = odd;
  }
  int left = tile.shfl_up(static_cast<int>(tile.thread_rank()), 1);
  if (tile.thread_rank() > 0 && left != static_cast<int>(tile.thread_rank()) - 1)
    atomicAdd(wrong, 1);
  if (tile.size() != N || block.size() != 64 || tile.meta_group_size() != 64 / N)
    atomicAdd(wrong, 1);
  cg::sync(block);
  block.sync();
  tile.sync();
}

void CUDART_CB note(cudaStream_t, cudaError_t status, void* data) {
  *static_cast<int*>(data) = status == cudaSuccess ? 7 : -1;
}

template <unsigned N>
int check_tiles() {
  int* sums = NULL;
  unsigned* ballots = NULL;
  CHECK(cudaHostAlloc((void**)&sums, 65 * sizeof(int), cudaHostAllocMapped) == cudaSuccess);
  CHECK(cudaHostAlloc((void**)&ballots, 64 * sizeof(unsigned), cudaHostAllocMapped) == cudaSuccess);
  sums[64] = 0;
  tiles<N><<<1, 64>>>(sums, ballots, sums + 64);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(sums[64] == 0);
  for (int t = 0; t < 64 / (int)N; ++t) {
    int sum = 0;
    unsigned odd = 0;
    for (int i = 0; i < (int)N; ++i) {
      sum += t * (int)N + i;
      odd |= ((t * N + i) % 2) << i;
    }
    CHECK(sums[t] == sum && ballots[t] == odd);
  }
  CHECK(cudaFreeHost(sums) == cudaSuccess && cudaFreeHost(ballots) == cudaSuccess);
  return 0;
}

int main() {
  CHECK(cudaProfilerStart() == cudaSuccess && cudaProfilerStop() == cudaSuccess);
  CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin) == cudaSuccess);
  CHECK(cudaSetDeviceFlags(0x4000) == cudaErrorInvalidValue);
  int value = -1;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 0) == cudaSuccess &&
        value == cudaComputeModeDefault);
  CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0) ==
        cudaErrorInvalidValue);
  CHECK(check_tiles<1>() == 0 && check_tiles<4>() == 0 && check_tiles<32>() == 0);

  cudaStream_t stream = NULL;
  CHECK(cudaStreamCreate(&stream) == cudaSuccess);
  int noted = 0;
  CHECK(cudaStreamAddCallback(stream, note, &noted, 0) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess && noted == 7);
  CHECK(cudaStreamAddCallback(stream, NULL, &noted, 0) == cudaErrorInvalidValue);

  int *a = NULL, *b = NULL;
  CHECK(cudaSetDevice(0) == cudaSuccess && cudaMalloc(&a, 64) == cudaSuccess);
  CHECK(cudaMemset(a, 1, 64) == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaSuccess && cudaMalloc(&b, 64) == cudaSuccess);
  CHECK(cudaDeviceDisablePeerAccess(0) == cudaErrorPeerAccessNotEnabled);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess &&
        cudaDeviceDisablePeerAccess(0) == cudaSuccess);
  CHECK(cudaMemcpyPeer(b, 1, a, 0, 64) == cudaSuccess);
  CHECK(cudaMemcpy(&value, b, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess &&
        value == 0x01010101);

  CHECK(cudaSetDevice(0) == cudaSuccess);
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  add_in_header(a, 2, stream);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagUseNodePriority) ==
        cudaSuccess);
  CHECK(cudaGraphUpload(exec, stream) == cudaSuccess);
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaMemcpy(&value, a, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess &&
        value == 0x01010107);
  std::printf("foreign: all as promised\n");
  return 0;
}
